// SPDX-License-Identifier: Apache-2.0
#include "runtime/group_layer.h"

#include "runtime/group/step_call.h"

#include <algorithm>
#include <atomic>
#include <fmt/format.h>

namespace moejit::runtime {
namespace {

using compiler::ExchangeStep;
using compiler::GradientMode;
using compiler::GroupPlan;
using compiler::Phase;
using compiler::TensorPlan;

// The most lists of kernels of a call: five steps and the experts.
constexpr std::size_t kMostSteps = 6;

Result<void> check_names(const GroupPlan& plan, std::span<const TensorRef> tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string_view name = tensors[i].name;
    if (std::ranges::find(plan.tensors, name, &TensorPlan::name) == plan.tensors.end())
      return fail(Stage::kLaunch, ErrorCode::kTensorMismatch,
                  fmt::format("tensor {}: {} of a group has no caller's tensor of this name", name,
                              compiler::named_layer(plan.layer)));
    if (std::ranges::count(tensors.first(i), name, &TensorRef::name) > 0)
      return fail(Stage::kLaunch, ErrorCode::kTensorMismatch,
                  fmt::format("tensor {}: it is given twice", name));
  }
  return {};
}

Result<void> check_block(std::string_view name, const void* address, int64_t bytes, int64_t wanted,
                         int64_t alignment) {
  if (bytes < wanted)
    return fail(
        Stage::kLaunch, ErrorCode::kWorkspaceTooSmall,
        fmt::format("the {} has {} bytes, wanted {} for a call of a group", name, bytes, wanted),
        "the group's plan has the bytes; they do not depend on T");
  if (address == nullptr && wanted > 0)
    return fail(Stage::kLaunch, ErrorCode::kTensorMismatch,
                fmt::format("the {}'s address is null, wanted {} bytes", name, wanted));
  if (reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(alignment) != 0)
    return fail(Stage::kLaunch, ErrorCode::kTensorMismatch,
                fmt::format("the {}'s address {} is not a multiple of {}", name, fmt::ptr(address),
                            alignment));
  return {};
}

// A copy of rows that came, for the backward call: peers overwrite their slots in the next call.
struct KeptRows {
  const std::byte* slots = nullptr;
  int64_t offset = 0;  // in the saved block
  int64_t bytes = 0;
};

}  // namespace

struct GroupLayer::Impl {
  GroupPlan plan;
  std::shared_ptr<GroupState> group;
  std::vector<std::unique_ptr<PreparedPlan>> prepared;
  std::vector<StepCall> forward, backward;  // in the order of a call
  std::size_t kept_after = 0;               // the number of forward's steps before the copies
  std::vector<KeptRows> kept;
  std::unique_ptr<PreparedPlan> experts;
  std::atomic<bool> has_run = false;  // whether a forward call was made

  Result<void> add_experts(Phase phase);
  Result<void> add_step(const compiler::GroupStep& step, Engine& engine,
                        const PrepareOptions& options);
  void keep(std::string_view name, std::string_view slots);
  Result<void> run(std::span<const StepCall> steps, std::optional<GradientMode> mode,
                   std::span<const TensorRef> tensors, const CallMemory& memory, Stream stream);
  Result<void> copy_kept(const CallMemory& memory, Stream stream) const;
};

Result<void> GroupLayer::Impl::add_experts(Phase phase) {
  MOEJIT_TRY_ASSIGN(StepCall step, StepCall::make(plan, *group, *experts, plan.experts,
                                                  experts_part(plan, phase)));
  (phase == Phase::kBackward ? backward : forward).push_back(std::move(step));
  return {};
}

Result<void> GroupLayer::Impl::add_step(const compiler::GroupStep& step, Engine& engine,
                                        const PrepareOptions& options) {
  // The experts come between the rows' arrival and the results' way home.
  if (step.step == ExchangeStep::kCombinePush) MOEJIT_TRY(add_experts(step.phase));
  MOEJIT_TRY_ASSIGN(auto made,
                    PreparedPlan::prepare(std::make_shared<const compiler::Plan>(step.plan), engine,
                                          *group->device, options));
  MOEJIT_TRY_ASSIGN(StepCall call,
                    StepCall::make(plan, *group, *made, step.plan, {Phase::kForward}));
  prepared.push_back(std::move(made));
  std::vector<StepCall>& calls = step.phase == Phase::kBackward ? backward : forward;
  calls.push_back(std::move(call));
  if (step.step == ExchangeStep::kAwait && step.phase == Phase::kForward) kept_after = calls.size();
  return {};
}

void GroupLayer::Impl::keep(std::string_view name, std::string_view slots) {
  const auto found = std::ranges::find(plan.in_saved, name, &compiler::PlacedTensor::name);
  if (found == plan.in_saved.end()) return;
  kept.push_back({.slots = group->address_of(slots, group->rank),
                  .offset = found->offset,
                  .bytes = found->bytes});
}

Result<void> GroupLayer::Impl::copy_kept(const CallMemory& memory, Stream stream) const {
  for (const KeptRows& rows : kept)
    MOEJIT_TRY(group->device->copy_on_device(static_cast<std::byte*>(memory.saved) + rows.offset,
                                             rows.slots, rows.bytes, stream));
  return {};
}

Result<void> GroupLayer::Impl::run(std::span<const StepCall> steps,
                                   std::optional<GradientMode> mode,
                                   std::span<const TensorRef> tensors, const CallMemory& memory,
                                   Stream stream) {
  const GroupCall call(*group);
  MOEJIT_TRY(call.check());
  MOEJIT_TRY(check_names(plan, tensors));
  const int64_t alignment = group->device->block_alignment();
  MOEJIT_TRY(check_block("workspace", memory.workspace, memory.workspace_bytes,
                         plan.workspace_bytes, alignment));
  MOEJIT_TRY(
      check_block("saved block", memory.saved, memory.saved_bytes, plan.saved_bytes, alignment));
  std::array<BoundTensors, kMostSteps> bound;
  for (std::size_t i = 0; i < steps.size(); ++i)
    MOEJIT_TRY(steps[i].bind(tensors, memory, bound[i]));
  const bool is_forward = steps.data() == forward.data();
  const auto launch = [&]() -> Result<void> {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (is_forward && i == kept_after) MOEJIT_TRY(copy_kept(memory, stream));
      MOEJIT_TRY(steps[i].run(mode, bound[i], stream));
    }
    return {};
  };
  const Result<void> launched = launch();
  if (!launched) group->has_half_call = true;  // peers wait for what this rank never sends
  return launched;
}

Result<std::unique_ptr<GroupLayer>> GroupLayer::prepare(const GroupPlan& plan, Group& group,
                                                        Engine& engine,
                                                        const PrepareOptions& options) {
  if (plan.rank != group.rank() || plan.memory != group.state()->memory)
    return fail(Stage::kLoad, ErrorCode::kInvalidValue,
                fmt::format("{} is planned for rank {} and {} bytes of the group's memory, and the "
                            "group was adopted for rank {} and {} bytes",
                            compiler::named_layer(plan.layer), plan.rank, plan.memory.bytes,
                            group.rank(), group.state()->memory.bytes),
                "layers share a group if ranks, max_tokens, top_k, hidden, dispatch and passes are "
                "equal");
  auto impl = std::make_unique<Impl>();
  impl->plan = plan;
  impl->group = group.state();
  MOEJIT_TRY_ASSIGN(impl->experts, PreparedPlan::prepare(
                                       std::make_shared<const compiler::Plan>(impl->plan.experts),
                                       engine, *impl->group->device, options));
  for (const compiler::GroupStep& step : impl->plan.steps)
    MOEJIT_TRY(impl->add_step(step, engine, options));
  impl->keep("received_x", "slots");
  impl->keep("received_x_scale_inv", "slot_scales");
  return std::unique_ptr<GroupLayer>(new GroupLayer(std::move(impl)));
}

GroupLayer::GroupLayer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GroupLayer::~GroupLayer() = default;

const GroupPlan& GroupLayer::plan() const { return impl_->plan; }

Result<void> GroupLayer::update_weights(std::span<const TensorRef> tensors, Stream stream) {
  BoundTensors bound;
  MOEJIT_TRY(impl_->experts->bind({Phase::kWeights}, tensors, {}, bound));
  return impl_->experts->run({Phase::kWeights}, std::nullopt, bound, stream, nullptr);
}

Result<void> GroupLayer::forward(std::span<const TensorRef> tensors, const CallMemory& memory,
                                 Stream stream) {
  MOEJIT_TRY(impl_->run(impl_->forward, std::nullopt, tensors, memory, stream));
  impl_->has_run = true;
  return {};
}

Result<void> GroupLayer::backward(std::span<const TensorRef> tensors, GradientMode mode,
                                  const CallMemory& memory, Stream stream) {
  const compiler::Layer& layer = impl_->plan.layer;
  if (!has_backward(layer))
    return fail(Stage::kLaunch, ErrorCode::kUnsupported,
                fmt::format("{} has no backward pass", compiler::named_layer(layer)),
                "add \"backward\" to \"passes\" in its description");
  if (mode == GradientMode::kAdd && !adds_gradients(layer))
    return fail(Stage::kLaunch, ErrorCode::kUnsupported,
                fmt::format("{} writes dw1 and dw2 in bf16 and adds nothing to them",
                            compiler::named_layer(layer)),
                "overwrite them, or leave \"wgrad_dtype\" out of its description");
  if (!impl_->has_run)
    return fail(Stage::kLaunch, ErrorCode::kInvalidState,
                fmt::format("backward of {} comes before any forward, wanted a forward call that "
                            "fills the saved block",
                            compiler::named_layer(layer)));
  return impl_->run(impl_->backward, mode, tensors, memory, stream);
}

}  // namespace moejit::runtime
