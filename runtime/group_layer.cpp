// SPDX-License-Identifier: Apache-2.0
#include "runtime/group_layer.h"

#include "runtime/group/group_state.h"
#include "runtime/launch/bound_tensors.h"

#include <atomic>
#include <fmt/format.h>
#include <vector>

namespace moejit::runtime {
namespace {

using compiler::GradientMode;
using compiler::GroupPlan;
using compiler::Phase;
using compiler::TensorPlan;
using compiler::TensorRole;

// Returns where the plan's tensors lie in the group's memory: "slots_1" is "slots" in the memory of
// rank 1, and "epoch" is in this rank's.
Result<std::vector<GroupTensor>> tensors_in(const GroupState& state, const GroupPlan& plan) {
  std::vector<GroupTensor> placed;
  for (const TensorPlan& tensor : plan.tensors) {
    if (tensor.role != TensorRole::kGroup) continue;
    const std::string_view name = tensor.name;
    std::byte* address = state.address_of(name, state.rank);
    if (address == nullptr)
      address = state.address_of(name.substr(0, name.size() - 2), name.back() - '0');
    if (address == nullptr)
      return fail(Stage::kLoad, ErrorCode::kInternal,
                  fmt::format("tensor {}: it lies nowhere in the memory of the group", name));
    placed.push_back({.name = name, .address = address});
  }
  return placed;
}

}  // namespace

struct GroupLayer::Impl {
  std::shared_ptr<const GroupPlan> plan;
  std::shared_ptr<GroupState> group;
  std::unique_ptr<PreparedPlan> prepared;
  std::atomic<bool> has_run = false;  // whether a forward call was made

  Result<void> run(Phase phase, std::optional<GradientMode> mode,
                   std::span<const TensorRef> tensors, const CallMemory& memory, Stream stream,
                   LaunchObserver* observer);
  // Runs a phase that reaches no other rank.
  Result<void> run_alone(Phase phase, std::span<const TensorRef> tensors, Stream stream) const;
  // Error kUnsupported: the layer has no backward pass.
  Result<void> check_backward() const;
};

Result<void> GroupLayer::Impl::run(Phase phase, std::optional<GradientMode> mode,
                                   std::span<const TensorRef> tensors, const CallMemory& memory,
                                   Stream stream, LaunchObserver* observer) {
  const GroupCall call(*group);
  MOEJIT_TRY(call.check());
  BoundTensors bound;
  MOEJIT_TRY(prepared->bind({phase}, tensors, memory, bound));
  const Result<void> launched = prepared->run({phase}, mode, bound, stream, observer);
  if (!launched) group->has_half_call = true;  // peers wait for what this rank never sends
  return launched;
}

Result<void> GroupLayer::Impl::run_alone(Phase phase, std::span<const TensorRef> tensors,
                                         Stream stream) const {
  BoundTensors bound;
  MOEJIT_TRY(prepared->bind({phase}, tensors, {}, bound));
  return prepared->run({phase}, std::nullopt, bound, stream, nullptr);
}

Result<void> GroupLayer::Impl::check_backward() const {
  if (has_backward(plan->layer)) return {};
  return fail(Stage::kLaunch, ErrorCode::kUnsupported,
              fmt::format("{} has no backward pass", compiler::named_layer(plan->layer)),
              "add \"backward\" to \"passes\" in its description");
}

Result<std::unique_ptr<GroupLayer>> GroupLayer::prepare(const GroupPlan& plan, Group& group,
                                                        Engine& engine,
                                                        const PrepareOptions& options) {
  if (plan.rank != group.rank() || !contains(group.state()->memory, plan.memory))
    return fail(
        Stage::kLoad, ErrorCode::kInvalidValue,
        fmt::format("{} is planned for rank {} and {} bytes of the group's memory, and the "
                    "group was adopted for rank {} and {} bytes",
                    compiler::named_layer(plan.layer), plan.rank, plan.memory.bytes, group.rank(),
                    group.state()->memory.bytes),
        "layers share a group if ranks, combine, max_tokens, top_k, hidden and dispatch are "
        "equal, and the group was opened for a layer with all their passes and gradients");
  auto impl = std::make_unique<Impl>();
  impl->plan = std::make_shared<const GroupPlan>(plan);
  impl->group = group.state();
  MOEJIT_TRY_ASSIGN(const std::vector<GroupTensor> placed, tensors_in(*impl->group, *impl->plan));
  PrepareOptions of_group = options;
  of_group.group = placed;
  of_group.transport = impl->group->transport.get();
  MOEJIT_TRY_ASSIGN(impl->prepared,
                    PreparedPlan::prepare(impl->plan, engine, *impl->group->device, of_group));
  return std::unique_ptr<GroupLayer>(new GroupLayer(std::move(impl)));
}

GroupLayer::GroupLayer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GroupLayer::~GroupLayer() = default;

const GroupPlan& GroupLayer::plan() const { return *impl_->plan; }

Result<void> GroupLayer::update_weights(std::span<const TensorRef> tensors, Stream stream) {
  return impl_->run_alone(Phase::kWeights, tensors, stream);
}

Result<void> GroupLayer::update_scales(compiler::Pass pass, std::span<const TensorRef> tensors,
                                       Stream stream) {
  if (pass == compiler::Pass::kForward)
    return impl_->run_alone(Phase::kForwardScales, tensors, stream);
  MOEJIT_TRY(impl_->check_backward());
  return impl_->run_alone(Phase::kBackwardScales, tensors, stream);
}

Result<void> GroupLayer::forward(std::span<const TensorRef> tensors, const CallMemory& memory,
                                 Stream stream, LaunchObserver* observer) {
  MOEJIT_TRY(impl_->run(Phase::kForward, std::nullopt, tensors, memory, stream, observer));
  impl_->has_run = true;
  return {};
}

Result<void> GroupLayer::backward(std::span<const TensorRef> tensors, GradientMode mode,
                                  const CallMemory& memory, Stream stream,
                                  LaunchObserver* observer) {
  const compiler::Layer& layer = impl_->plan->layer;
  MOEJIT_TRY(impl_->check_backward());
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
  return impl_->run(Phase::kBackward, mode, tensors, memory, stream, observer);
}

}  // namespace moejit::runtime
