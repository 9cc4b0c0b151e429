// SPDX-License-Identifier: Apache-2.0
#include "runtime/prepared_plan.h"

#include "compiler/compiler.h"
#include "runtime/device.h"
#include "runtime/group.h"
#include "runtime/group/group_state.h"
#include "runtime/launch/bound_tensors.h"
#include "runtime/launch/collective_call.h"
#include "runtime/launch/host_readable.h"
#include "runtime/launch/kept_values.h"
#include "runtime/launch/kernel_call.h"

#include <algorithm>
#include <atomic>
#include <fmt/core.h>
#include <vector>

namespace moejit::runtime {
namespace {

using compiler::BlockUse;
using compiler::CallPlan;
using compiler::CallStep;
using compiler::KernelPlan;
using compiler::Plan;

// Obtains the plan's kernels. The engine knows kernels alone, so its errors get the layer's name.
Result<std::vector<ObtainedKernel>> obtain_kernels(const Plan& plan, Engine& engine,
                                                   const PrepareOptions& options) {
  std::vector<compiler::KernelSource> sources;
  for (const KernelPlan& kernel : plan.kernels) {
    MOEJIT_TRY_ASSIGN(compiler::KernelSource source, compiler::emit_kernel(kernel, plan.target));
    sources.push_back(std::move(source));
  }
  return engine.obtain_all(sources, options.patience, options.progress).map_error([&](Error error) {
    error.message = fmt::format("{}: {}", plan.subject, error.message);
    return error;
  });
}

// Warns if the plan was tuned for another GPU than the device's.
void check_tuning(const Plan& plan, Engine& engine, const Device& device) {
  const auto gpu = device.gpu_facts().identity;
  if (!plan.tuned_for || !gpu || is_same_gpu(*plan.tuned_for, *gpu)) return;
  engine.warn(
      fmt::format("{} is tuned for the {}, and this is the {}: its results are right, but "
                  "other choices may be faster",
                  plan.subject, to_string(*plan.tuned_for), to_string(*gpu)));
}

}  // namespace

struct PreparedPlan::Impl {
  static Result<std::unique_ptr<Impl>> prepare(std::shared_ptr<const Plan> plan, Engine& engine,
                                               Device& device, std::span<std::byte* const> group,
                                               const PrepareOptions& options);
  Result<void> bind(const CallPlan& call, std::span<const TensorRef> tensors,
                    const CallMemory& memory, BoundTensors& bound);
  Result<void> check_memory(const BoundTensors& tensors) const;
  Result<void> bind_and_run(const CallPlan& call, std::span<const TensorRef> tensors,
                            const CallMemory& memory, Stream stream, LaunchObserver* observer);
  Result<void> run_in_group(const CallPlan& call, std::span<const TensorRef> tensors,
                            const CallMemory& memory, Stream stream, LaunchObserver* observer);
  Result<void> run(const CallPlan& call, const BoundTensors& bound, Stream stream,
                   LaunchObserver* observer) const;
  Result<void> launch(std::size_t index, const LaunchPlace& place, const BoundTensors& bound,
                      LaunchBefore& before) const;
  // Does a collective step.
  Result<void> move_blocks(std::size_t index, const BoundTensors& bound, Stream stream) const;

  std::shared_ptr<const Plan> plan;
  compiler::MemoryLayout layout;
  KeptLayout kept_layout;
  Device* device = nullptr;
  std::vector<KernelCall> kernels;          // one for each of the plan's
  std::vector<CollectiveCall> collectives;  // one for each of the plan's
  std::shared_ptr<GroupState> group;        // of a rank's plan; else null
  std::atomic<bool> has_saved = false;      // whether a call has filled a saved block
};

Result<std::unique_ptr<PreparedPlan::Impl>> PreparedPlan::Impl::prepare(
    std::shared_ptr<const Plan> plan, Engine& engine, Device& device,
    std::span<std::byte* const> group, const PrepareOptions& options) {
  if (plan->target != device.target())
    return fail(Stage::kLoad, ErrorCode::kUnsupported,
                fmt::format("{} is planned for {}, wanted {} for the device {}", plan->subject,
                            to_string(plan->target), to_string(device.target()), device.name()));
  check_tuning(*plan, engine, device);
  MOEJIT_TRY_ASSIGN(compiler::MemoryLayout layout, compiler::MemoryLayout::make(*plan));
  MOEJIT_TRY_ASSIGN(const std::vector<ObtainedKernel> kernels,
                    obtain_kernels(*plan, engine, options));
  auto impl = std::make_unique<Impl>();
  impl->plan = std::move(plan);
  impl->layout = std::move(layout);
  impl->device = &device;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    MOEJIT_TRY_ASSIGN(auto loaded, device.load(*kernels[i].binary));
    MOEJIT_TRY_ASSIGN(KernelCall call,
                      KernelCall::resolve(*impl->plan, i, std::move(loaded), group));
    impl->kernels.push_back(std::move(call));
  }
  for (std::size_t i = 0; i < impl->plan->collectives.size(); ++i) {
    MOEJIT_TRY_ASSIGN(CollectiveCall step, CollectiveCall::resolve(*impl->plan, i, group));
    impl->collectives.push_back(std::move(step));
  }
  return impl;
}

Result<std::unique_ptr<PreparedPlan>> PreparedPlan::prepare(std::shared_ptr<const Plan> plan,
                                                            Engine& engine, Device& device,
                                                            const PrepareOptions& options) {
  if (plan->group)
    return fail(Stage::kLoad, ErrorCode::kUnsupported,
                fmt::format("{} is shared by the ranks of a group, wanted a plan of one rank",
                            plan->subject),
                "prepare it for a group instead of a device");
  MOEJIT_TRY_ASSIGN(auto impl, Impl::prepare(std::move(plan), engine, device, {}, options));
  return std::unique_ptr<PreparedPlan>(new PreparedPlan(std::move(impl)));
}

Result<std::unique_ptr<PreparedPlan>> PreparedPlan::prepare(std::shared_ptr<const Plan> plan,
                                                            Engine& engine, Group& group,
                                                            const PrepareOptions& options) {
  MOEJIT_TRY(check_is_of_group(*plan));
  const std::shared_ptr<GroupState>& state = group.state();
  const auto& [rank, memory] = *plan->group;
  if (rank != group.rank() || !contains(state->memory, memory))
    return fail(
        Stage::kLoad, ErrorCode::kInvalidValue,
        fmt::format("{} is planned for rank {} and {} bytes of the group's memory, and the "
                    "group was adopted for rank {} and {} bytes",
                    plan->subject, rank, memory.bytes, group.rank(), state->memory.bytes),
        "layers share a group if ranks, combine, max_tokens, top_k, hidden and dispatch are "
        "equal, and the group was opened for a layer with all their passes and gradients");
  if (!plan->collectives.empty() && state->transport == nullptr)
    return fail(
        Stage::kLoad, ErrorCode::kUnsupported,
        fmt::format("{} has steps of a transport, wanted one between its ranks", plan->subject),
        "prepare it for a group that was opened with a transport");
  MOEJIT_TRY_ASSIGN(auto impl,
                    Impl::prepare(std::move(plan), engine, *state->device, state->bases, options));
  impl->group = state;
  return std::unique_ptr<PreparedPlan>(new PreparedPlan(std::move(impl)));
}

PreparedPlan::PreparedPlan(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PreparedPlan::~PreparedPlan() = default;

const Plan& PreparedPlan::plan() const { return *impl_->plan; }

const compiler::MemoryLayout& PreparedPlan::layout() const { return impl_->layout; }

Result<void> PreparedPlan::call(std::size_t index, std::span<const TensorRef> tensors,
                                const CallMemory& memory, Stream stream, LaunchObserver* observer) {
  const CallPlan& call = impl_->plan->calls[index];
  return call.is_of_all_ranks ? impl_->run_in_group(call, tensors, memory, stream, observer)
                              : impl_->bind_and_run(call, tensors, memory, stream, observer);
}

Result<void> PreparedPlan::call(std::string_view name, std::span<const TensorRef> tensors,
                                const CallMemory& memory, Stream stream, LaunchObserver* observer) {
  MOEJIT_TRY_ASSIGN(const std::size_t index, find_call(*impl_->plan, name));
  return call(index, tensors, memory, stream, observer);
}

Result<void> PreparedPlan::launch(std::size_t index, std::span<const TensorRef> tensors,
                                  const CallMemory& memory, Stream stream) const {
  const Plan& plan = *impl_->plan;
  const std::size_t call = call_of_kernel(plan, index);
  if (call == plan.calls.size())
    return fail(
        Stage::kLaunch, ErrorCode::kInternal,
        fmt::format("kernel {} of {}: the plan has {}", index, plan.subject, plan.kernels.size()));
  BoundTensors bound;
  MOEJIT_TRY(impl_->bind(plan.calls[call], tensors, memory, bound));
  LaunchBefore nothing;
  return impl_->launch(index, {.device = *impl_->device, .stream = stream}, bound, nothing);
}

Result<void> PreparedPlan::Impl::check_memory(const BoundTensors& tensors) const {
  for (std::size_t slot = 0; slot < plan->tensors.size(); ++slot)
    if (tensors.is_bound[slot])
      MOEJIT_TRY(device->check_memory({.name = plan->tensors[slot].name,
                                       .address = tensors.address[slot],
                                       .bytes = tensors.bytes[slot]}));
  return {};
}

Result<void> PreparedPlan::Impl::bind(const CallPlan& call, std::span<const TensorRef> tensors,
                                      const CallMemory& memory, BoundTensors& bound) {
  MOEJIT_TRY(bind_tensors(*plan, call, tensors, bound));
  if (has_memory(call))
    MOEJIT_TRY(kept_layout.with(layout, bound.dims.tokens, [&](const compiler::CallLayout& places) {
      return bind_memory(*plan, layout, places, call, device->block_alignment(), memory, bound);
    }));
  MOEJIT_TRY(check_overlaps(*plan, call, bound));
  if (device->checks_memory()) MOEJIT_TRY(check_memory(bound));
  // What the ranks of a group compare themselves may not be there yet.
  const bool reads_saved = call.saved == BlockUse::kRead && !call.steps.empty();
  if (reads_saved && device->is_host_memory() && group == nullptr)
    return check_saved_tokens(*plan, bound);
  return {};
}

Result<void> PreparedPlan::Impl::bind_and_run(const CallPlan& call,
                                              std::span<const TensorRef> tensors,
                                              const CallMemory& memory, Stream stream,
                                              LaunchObserver* observer) {
  BoundTensors bound;
  MOEJIT_TRY(bind(call, tensors, memory, bound));
  return run(call, bound, stream, observer);
}

Result<void> PreparedPlan::Impl::run_in_group(const CallPlan& call,
                                              std::span<const TensorRef> tensors,
                                              const CallMemory& memory, Stream stream,
                                              LaunchObserver* observer) {
  if (call.saved == BlockUse::kRead && !has_saved)
    return fail(Stage::kLaunch, ErrorCode::kInvalidState,
                fmt::format("{} of {} comes before any forward, wanted a forward call that fills "
                            "the saved block",
                            call.name, plan->subject));
  const GroupCall alone(*group);
  MOEJIT_TRY(alone.check());
  BoundTensors bound;
  MOEJIT_TRY(bind(call, tensors, memory, bound));
  const Result<void> launched = run(call, bound, stream, observer);
  if (!launched)
    group->has_half_call = true;  // peers wait for what this rank never sends
  else if (call.saved == BlockUse::kWrite)
    has_saved = true;
  return launched;
}

Result<void> PreparedPlan::Impl::run(const CallPlan& call, const BoundTensors& bound, Stream stream,
                                     LaunchObserver* observer) const {
  if (call.steps.empty()) return {};
  const EnteredDevice entered(*device);
  MOEJIT_TRY(entered.check());
  MOEJIT_TRY_ASSIGN(const bool is_recorded, device->is_recording(stream));
  const LaunchPlace place{*device, stream, is_recorded};
  LaunchBefore before;  // nothing: the first launch waits for all that is on the stream
  for (const auto& [is_collective, index] : call.steps) {
    if (is_collective) {
      MOEJIT_TRY(move_blocks(index, bound, stream));
      before.overlaps = false;
      continue;
    }
    if (observer != nullptr) MOEJIT_TRY(observer->before(index));
    MOEJIT_TRY(launch(index, place, bound, before));
    if (observer != nullptr) MOEJIT_TRY(observer->after(index));
  }
  return {};
}

Result<void> PreparedPlan::Impl::launch(std::size_t index, const LaunchPlace& place,
                                        const BoundTensors& bound, LaunchBefore& before) const {
  auto launched = kernels[index].launch(place, bound, before);
  if (!launched)
    launched.error().message =
        fmt::format("kernel {}: {}", plan->kernels[index].operation, launched.error().message);
  return launched;
}

Result<void> PreparedPlan::Impl::move_blocks(std::size_t index, const BoundTensors& bound,
                                             Stream stream) const {
  auto moved = collectives[index].run(*group->transport, bound, stream);
  if (!moved)
    moved.error().message =
        fmt::format("step {}: {}", plan->collectives[index].operation, moved.error().message);
  return moved;
}

}  // namespace moejit::runtime
