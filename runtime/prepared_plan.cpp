// SPDX-License-Identifier: Apache-2.0
#include "runtime/prepared_plan.h"

#include "compiler/compiler.h"
#include "runtime/entered_device.h"
#include "runtime/launch/bound_tensors.h"
#include "runtime/launch/collective_call.h"
#include "runtime/launch/kept_layout.h"
#include "runtime/launch/kernel_call.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <vector>

namespace moejit::runtime {
namespace {

using compiler::BackwardHalf;
using compiler::DispatchCall;
using compiler::GradientMode;
using compiler::KernelPlan;
using compiler::Phase;
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

// Every part that a call may run.
constexpr CallPart kCallParts[] = {
    {Phase::kWeights},
    {Phase::kForwardScales},
    {Phase::kBackwardScales},
    {Phase::kForward},
    {Phase::kForward, {}, DispatchCall::kQuantize},
    {Phase::kForward, {}, DispatchCall::kExperts},
    {Phase::kBackward},
    {Phase::kBackward, {}, DispatchCall::kQuantize},
    {Phase::kBackward, {}, DispatchCall::kExperts},
    {Phase::kBackward, BackwardHalf::kData},
    {Phase::kBackward, BackwardHalf::kData, DispatchCall::kExperts},
    {Phase::kBackward, BackwardHalf::kWeights},
    {Phase::kBackward, BackwardHalf::kWeights, DispatchCall::kExperts}};

std::size_t index_of(const CallPart& part) {
  return static_cast<std::size_t>(std::ranges::find(kCallParts, part) - std::begin(kCallParts));
}

// Returns whether a call of this part has blocks of memory: calls that only quantize, or find
// scales, have none.
bool has_memory(const CallPart& part) {
  return part.phase != Phase::kWeights && !is_of_scales(part.phase) &&
         part.dispatch_call != DispatchCall::kQuantize;
}

// A kernel of a part, by its index in the plan.
struct PartKernel {
  std::size_t index = 0;
  std::optional<GradientMode> gradient_mode;  // of the calls that launch it, if not all do
};

// A part of the plan: the caller's tensors, and the kernels in their order.
struct Part {
  TensorSet all, written, shapes;
  std::vector<PartKernel> kernels;
};

Part part_of(const Plan& plan, const CallPart& part) {
  Part made{.all = tensors_of_call(plan, part),
            .written = tensors_written(plan, part),
            .shapes = tensors_of_shape(plan, part)};
  for (std::size_t i = 0; i < plan.kernels.size(); ++i)
    if (is_of_part(plan.kernels[i], part))
      made.kernels.push_back({i, plan.kernels[i].gradient_mode});
  return made;
}

}  // namespace

struct PreparedPlan::Impl {
  Result<void> check_memory(const BoundTensors& tensors) const;
  Result<void> launch(std::size_t index, const LaunchPlace& place, const BoundTensors& bound) const;
  // Does the collective steps of a part in front of a kernel.
  Result<void> move_blocks(const CallPart& part, std::size_t before, const BoundTensors& bound,
                           Stream stream) const;

  std::shared_ptr<const Plan> plan;
  compiler::MemoryLayout layout;
  KeptLayout kept_layout;
  std::vector<std::size_t> callers;  // the caller's tensors
  Device* device = nullptr;
  Transport* transport = nullptr;
  std::vector<KernelCall> calls;                  // one for each of the plan's kernels
  std::vector<CollectiveCall> steps;              // one for each of its collective steps
  std::array<Part, std::size(kCallParts)> parts;  // in the order of kCallParts
};

Result<void> PreparedPlan::Impl::check_memory(const BoundTensors& tensors) const {
  for (std::size_t slot = 0; slot < plan->tensors.size(); ++slot)
    if (tensors.is_bound[slot])
      MOEJIT_TRY(device->check_memory({.name = plan->tensors[slot].name,
                                       .address = tensors.address[slot],
                                       .bytes = tensors.bytes[slot]}));
  return {};
}

Result<void> PreparedPlan::Impl::move_blocks(const CallPart& part, std::size_t before,
                                             const BoundTensors& bound, Stream stream) const {
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const compiler::CollectivePlan& step = plan->collectives[i];
    if (step.phase != part.phase || step.before != static_cast<int32_t>(before)) continue;
    auto moved = steps[i].run(*transport, bound, stream);
    if (moved) continue;
    moved.error().message = fmt::format("step {}: {}", step.operation, moved.error().message);
    return moved;
  }
  return {};
}

Result<std::unique_ptr<PreparedPlan>> PreparedPlan::prepare(std::shared_ptr<const Plan> plan,
                                                            Engine& engine, Device& device,
                                                            const PrepareOptions& options) {
  if (plan->target != device.target())
    return fail(Stage::kLoad, ErrorCode::kUnsupported,
                fmt::format("{} is planned for {}, wanted {} for the device {}", plan->subject,
                            to_string(plan->target), to_string(device.target()), device.name()));
  if (!plan->collectives.empty() && options.transport == nullptr)
    return fail(
        Stage::kLoad, ErrorCode::kUnsupported,
        fmt::format("{} has steps of a transport, wanted one between its ranks", plan->subject),
        "prepare it for a group that was opened with a transport");
  check_tuning(*plan, engine, device);
  MOEJIT_TRY_ASSIGN(compiler::MemoryLayout layout, compiler::MemoryLayout::make(*plan));
  MOEJIT_TRY_ASSIGN(const std::vector<ObtainedKernel> kernels,
                    obtain_kernels(*plan, engine, options));
  auto impl = std::make_unique<Impl>();
  impl->plan = std::move(plan);
  impl->layout = std::move(layout);
  impl->device = &device;
  impl->transport = options.transport;
  impl->callers = slots_of_callers(*impl->plan);
  for (const CallPart& part : kCallParts) impl->parts[index_of(part)] = part_of(*impl->plan, part);
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    MOEJIT_TRY_ASSIGN(auto loaded, device.load(*kernels[i].binary));
    MOEJIT_TRY_ASSIGN(KernelCall call,
                      KernelCall::resolve(*impl->plan, i, std::move(loaded), options.group));
    impl->calls.push_back(std::move(call));
  }
  for (std::size_t i = 0; i < impl->plan->collectives.size(); ++i) {
    MOEJIT_TRY_ASSIGN(CollectiveCall step, CollectiveCall::resolve(*impl->plan, i, options.group));
    impl->steps.push_back(std::move(step));
  }
  return std::unique_ptr<PreparedPlan>(new PreparedPlan(std::move(impl)));
}

PreparedPlan::PreparedPlan(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PreparedPlan::~PreparedPlan() = default;

const Plan& PreparedPlan::plan() const { return *impl_->plan; }

const compiler::MemoryLayout& PreparedPlan::layout() const { return impl_->layout; }

Result<void> PreparedPlan::run(std::span<const TensorRef> tensors, const CallMemory& memory,
                               Stream stream, LaunchObserver* observer) {
  BoundTensors bound;
  MOEJIT_TRY(bind({Phase::kForward}, tensors, memory, bound));
  return run({Phase::kForward}, std::nullopt, bound, stream, observer);
}

Result<void> PreparedPlan::bind(const CallPart& part, std::span<const TensorRef> tensors,
                                const CallMemory& memory, BoundTensors& bound) const {
  const Plan& plan = *impl_->plan;
  const Part& of_part = impl_->parts[index_of(part)];
  MOEJIT_TRY(
      bind_tensors(plan, impl_->callers, part.phase, of_part.all, of_part.shapes, tensors, bound));
  if (has_memory(part))
    MOEJIT_TRY(impl_->kept_layout.with(
        impl_->layout, bound.dims.tokens, [&](const compiler::CallLayout& call) {
          return bind_memory(plan, impl_->layout, call, part, impl_->device->block_alignment(),
                             memory, bound);
        }));
  MOEJIT_TRY(check_overlaps(plan, impl_->callers, part, of_part.written, bound));
  if (impl_->device->checks_memory()) return impl_->check_memory(bound);
  return {};
}

Result<void> PreparedPlan::run(const CallPart& part, std::optional<GradientMode> mode,
                               const BoundTensors& bound, Stream stream,
                               LaunchObserver* observer) const {
  const std::vector<PartKernel>& kernels = impl_->parts[index_of(part)].kernels;
  if (kernels.empty()) return {};
  const EnteredDevice entered(*impl_->device);
  MOEJIT_TRY(entered.check());
  MOEJIT_TRY_ASSIGN(const bool is_recorded, impl_->device->is_recording(stream));
  const LaunchPlace place{*impl_->device, stream, is_recorded};
  for (const auto& [i, gradient_mode] : kernels) {
    if (!impl_->steps.empty()) MOEJIT_TRY(impl_->move_blocks(part, i, bound, stream));
    if (gradient_mode && gradient_mode != mode) continue;
    if (observer != nullptr) MOEJIT_TRY(observer->before(i));
    MOEJIT_TRY(impl_->launch(i, place, bound));
    if (observer != nullptr) MOEJIT_TRY(observer->after(i));
  }
  return {};
}

Result<void> PreparedPlan::Impl::launch(std::size_t index, const LaunchPlace& place,
                                        const BoundTensors& bound) const {
  auto launched = calls[index].launch(place, bound);
  if (!launched)
    launched.error().message =
        fmt::format("kernel {}: {}", plan->kernels[index].operation, launched.error().message);
  return launched;
}

Result<void> PreparedPlan::launch(std::size_t index, const BoundTensors& bound,
                                  Stream stream) const {
  return impl_->launch(index, {.device = *impl_->device, .stream = stream}, bound);
}

}  // namespace moejit::runtime
