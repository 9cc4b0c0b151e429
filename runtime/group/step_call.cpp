// SPDX-License-Identifier: Apache-2.0
#include "runtime/group/step_call.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::runtime {

using compiler::CallPart;
using compiler::GroupPlan;
using compiler::PlacedTensor;
using compiler::TensorPlan;

Result<StepCall::Source> StepCall::find(const GroupPlan& plan, const GroupState& state,
                                        const std::string& name) {
  // "slots_1" is "slots" in the memory of rank 1; "epoch" is touched by its own rank alone.
  if (std::byte* own = state.address_of(name, state.rank); own != nullptr)
    return Source{.place = Place::kGroup, .address = own};
  const std::size_t last = name.rfind('_');
  if (last != std::string::npos && last + 2 == name.size())
    if (std::byte* peers = state.address_of(name.substr(0, last), name.back() - '0');
        peers != nullptr)
      return Source{.place = Place::kGroup, .address = peers};
  if (const auto in = std::ranges::find(plan.in_workspace, name, &PlacedTensor::name);
      in != plan.in_workspace.end())
    return Source{.place = Place::kWorkspace, .offset = in->offset};
  if (const auto in = std::ranges::find(plan.in_saved, name, &PlacedTensor::name);
      in != plan.in_saved.end())
    return Source{.place = Place::kSaved, .offset = in->offset};
  if (std::ranges::find(plan.tensors, name, &TensorPlan::name) != plan.tensors.end())
    return Source{.place = Place::kCaller};
  return fail(Stage::kLoad, ErrorCode::kInternal,
              fmt::format("tensor {}: it lies nowhere in a call of a group", name));
}

Result<StepCall> StepCall::make(const GroupPlan& plan, const GroupState& state,
                                const PreparedPlan& prepared, const compiler::Plan& of,
                                const CallPart& part) {
  StepCall step;
  step.prepared_ = &prepared;
  step.part_ = part;
  step.own_.workspace_bytes = of.workspace_bytes;
  step.own_.saved_bytes = of.saved_bytes;
  const bool is_of_experts = &of == &plan.experts;
  for (const TensorPlan& tensor : of.tensors) {
    if (!is_callers(tensor.role) || !is_used(of, tensor, part)) continue;
    const std::string name =
        is_of_experts ? name_in_group(plan, part.phase, tensor.name) : tensor.name;
    MOEJIT_TRY_ASSIGN(const Source source, find(plan, state, name));
    step.sources_.push_back(source);
    step.names_.push_back(tensor.name);
    step.dtypes_.push_back(tensor.dtype);
    std::vector<int64_t>& shape = step.shapes_.emplace_back();
    for (const compiler::Dim& dim : tensor.shape) shape.push_back(dim.value);
  }
  return step;
}

Result<void> StepCall::bind(std::span<const TensorRef> tensors, const CallMemory& memory,
                            BoundTensors& bound) const {
  std::array<TensorRef, kMostTensors> refs;
  std::size_t count = 0;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    const Source& source = sources_[i];
    TensorRef ref{names_[i], dtypes_[i], shapes_[i], source.address};
    if (source.place == Place::kWorkspace)
      ref.data = static_cast<std::byte*>(memory.workspace) + source.offset;
    if (source.place == Place::kSaved)
      ref.data = static_cast<std::byte*>(memory.saved) + source.offset;
    if (source.place == Place::kCaller) {
      // Leaves out what is not given, so that binding says what is missing.
      const auto given = std::ranges::find(tensors, names_[i], &TensorRef::name);
      if (given == tensors.end()) continue;
      ref = *given;
    }
    refs[count++] = ref;
  }
  CallMemory own = memory;
  own.workspace_bytes = own_.workspace_bytes;
  own.saved_bytes = own_.saved_bytes;
  return prepared_->bind(part_, {refs.data(), count}, own, bound);
}

}  // namespace moejit::runtime
