// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/c/plan_handle.h"

#include "runtime/bindings/c/dlpack_dtype.h"
#include "runtime/bindings/c/records.h"

#include <algorithm>

namespace moejit::bindings {
namespace {

using compiler::Plan;
using compiler::TensorPlan;
using compiler::TensorRole;

moejit_role role_of(TensorRole role) {
  switch (role) {
    case TensorRole::kInput: return MOEJIT_ROLE_INPUT;
    case TensorRole::kWeight: return MOEJIT_ROLE_WEIGHT;
    case TensorRole::kQuantized: return MOEJIT_ROLE_QUANTIZED;
    case TensorRole::kDispatched: return MOEJIT_ROLE_DISPATCHED;
    case TensorRole::kOutput: return MOEJIT_ROLE_OUTPUT;
    case TensorRole::kState: return MOEJIT_ROLE_STATE;
    case TensorRole::kSaved: return MOEJIT_ROLE_SAVED;
    case TensorRole::kDeferred: return MOEJIT_ROLE_DEFERRED;
    case TensorRole::kGroup:  // no caller gives it
    case TensorRole::kWorkspace: break;
  }
  return MOEJIT_ROLE_WORKSPACE;
}

// Returns whether a call reads what the caller put into an output.
bool is_updated(const Plan& plan, const TensorPlan& tensor) {
  if (tensor.role != TensorRole::kOutput) return false;
  const auto first = std::ranges::find_if(plan.kernels, [&](const compiler::KernelPlan& kernel) {
    return touches(kernel, tensor.name) && kernel.gradient_mode != compiler::GradientMode::kAdd;
  });
  return first != plan.kernels.end() && reads(*first, tensor.name);
}

}  // namespace

CallerTensor caller_tensor(const TensorPlan& tensor) {
  CallerTensor result;
  for (const compiler::Dim& dim : tensor.shape) {
    result.shape.push_back(dim.value);
    result.symbols.push_back(dim.symbol.c_str());
  }
  return result;
}

Result<void> check_index(const Plan& plan, std::size_t index) {
  const std::size_t count = plan.tensors.size();
  if (index < count) return {};
  return fail(Stage::kPlan, ErrorCode::kInvalidValue,
              fmt::format("{} has {} tensors, got the index {}", plan.subject, count, index));
}

Result<void> describe_tensor(const Plan& plan, const PlanHandle& handle, std::size_t index,
                             moejit_tensor_info* info) {
  MOEJIT_TRY(check_index(plan, index));
  const TensorPlan& tensor = plan.tensors[index];
  const CallerTensor& known = handle.tensors[index];
  return write_record(Stage::kPlan,
                      {.name = tensor.name.c_str(),
                       .dtype_name = to_string(tensor.dtype).data(),  // a literal
                       .shape = known.shape.data(),
                       .symbols = known.symbols.data(),
                       .bytes = tensor.bytes,
                       .offset = block_offset(tensor),
                       .dtype = dl_data_type(tensor.dtype),
                       .ndim = static_cast<int32_t>(known.shape.size()),
                       .role = role_of(tensor.role),
                       .used_by = known.used_by,
                       .is_optional = tensor.is_optional ? 1u : 0u,
                       .is_optional_in_backward = tensor.is_optional_in_backward ? 1u : 0u,
                       .is_updated = is_updated(plan, tensor) ? 1u : 0u},
                      info, "moejit_tensor_info");
}

Result<void> describe_tensor(const Plan& plan, const PlanHandle& handle, std::string_view name,
                             std::string_view list_function, moejit_tensor_info* info) {
  const auto found = std::ranges::find(plan.tensors, name, &TensorPlan::name);
  if (found != plan.tensors.end())
    return describe_tensor(plan, handle, static_cast<std::size_t>(found - plan.tensors.begin()),
                           info);
  return fail(Stage::kPlan, ErrorCode::kMissingTensor,
              fmt::format("{} has no tensor {}", plan.subject, name),
              fmt::format("{}() lists them", list_function));
}

Result<void> describe_place(const compiler::Plan& plan, const PlanHandle& handle, std::size_t index,
                            int64_t tokens, moejit_tensor_place* place) {
  MOEJIT_TRY(check_index(plan, index));
  MOEJIT_TRY(handle.layout.sizes(tokens));  // fails if T is out of range
  const compiler::TensorPlan& tensor = plan.tensors[index];
  const compiler::CallLayout call = handle.layout.at(tokens);
  moejit_tensor_place result{.offset = block_offset(tensor) < 0 ? -1 : call.offset[index],
                             .bytes = size_bytes(tensor.dtype)};
  for (std::size_t i = 0; i < std::min(tensor.shape.size(), std::size(result.shape)); ++i) {
    result.shape[i] = size_in_call(tensor.shape[i], call.dims);
    result.bytes *= result.shape[i];
  }
  return write_record(Stage::kPlan, result, place, "moejit_tensor_place");
}

}  // namespace moejit::bindings
