// SPDX-License-Identifier: Apache-2.0
#include "runtime/prepared_layer.h"

#include "runtime/launch/bound_tensors.h"
#include "runtime/launch/kernel_call.h"
#include "runtime/launch/saved_tokens.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <optional>

namespace moejit::runtime {
namespace {

using compiler::BackwardHalf;
using compiler::GradientMode;
using compiler::KernelBinary;
using compiler::Phase;
using compiler::Plan;

Result<std::vector<ObtainedKernel>> obtain_kernels(const Plan& plan, Engine& engine,
                                                   const PrepareOptions& options) {
  std::vector<compiler::KernelSource> sources;
  for (const compiler::KernelPlan& kernel : plan.kernels) {
    MOEJIT_TRY_ASSIGN(compiler::KernelSource source, compiler::emit_kernel(kernel, plan.target));
    sources.push_back(std::move(source));
  }
  return engine.obtain_all(sources, options.patience, options.progress);
}

// Every part that a call may run, the phases first.
constexpr CallPart kCallParts[] = {{Phase::kWeights},
                                   {Phase::kForward},
                                   {Phase::kBackward},
                                   {Phase::kBackward, BackwardHalf::kData},
                                   {Phase::kBackward, BackwardHalf::kWeights}};

std::size_t index_of(const CallPart& part) {
  const auto phase = static_cast<std::size_t>(part.phase);
  return part.half ? phase + 1 + static_cast<std::size_t>(*part.half) : phase;
}

// The caller's tensors of a part of the plan.
struct PartTensors {
  TensorSet all, written, shapes;
};

}  // namespace

struct PreparedLayer::Impl {
  // The tensors of a call of this part. Filled where they are used: the record is large.
  Result<void> bind(const CallPart& part, std::span<const TensorRef> tensors,
                    const CallMemory& memory, BoundTensors& bound) const;
  // Why there is no such backward call, if there is none.
  Result<void> check_backward(std::optional<BackwardHalf> half,
                              std::optional<GradientMode> mode) const;
  Result<void> check_memory(const BoundTensors& tensors) const;
  Result<void> launch(std::size_t index, const BoundTensors& tensors, Stream stream) const;
  // Kernels of the other gradient mode are left out.
  Result<void> run(const CallPart& part, std::optional<GradientMode> mode,
                   const BoundTensors& tensors, Stream stream, LaunchObserver* observer);
  Result<void> backward(std::optional<BackwardHalf> half, std::optional<GradientMode> mode,
                        std::span<const TensorRef> tensors, const CallMemory& memory, Stream stream,
                        LaunchObserver* observer);

  compiler::LayerPlan plan;
  compiler::MemoryLayout layout;
  Device* device = nullptr;
  std::vector<KernelCall> calls;  // one for each of plan.kernels
  std::array<PartTensors, std::size(kCallParts)> part_tensors;
};

Result<void> PreparedLayer::Impl::bind(const CallPart& part, std::span<const TensorRef> tensors,
                                       const CallMemory& memory, BoundTensors& bound) const {
  const PartTensors& of_part = part_tensors[index_of(part)];
  MOEJIT_TRY(bind_tensors(plan, part.phase, of_part.all, of_part.shapes, tensors, bound));
  if (part.phase != Phase::kWeights)
    MOEJIT_TRY(bind_memory(plan, layout, part, device->block_alignment(), memory, bound));
  MOEJIT_TRY(check_overlaps(plan, part, of_part.written, bound));
  if (device->checks_memory()) MOEJIT_TRY(check_memory(bound));
  // A half with nothing to compute has no tensors that would tell T.
  if (part.phase != Phase::kBackward || of_part.all.none() || !device->is_host_memory()) return {};
  return check_saved_tokens(plan, bound);
}

Result<void> PreparedLayer::Impl::check_memory(const BoundTensors& tensors) const {
  for (std::size_t slot = 0; slot < plan.tensors.size(); ++slot)
    if (tensors.is_bound[slot])
      MOEJIT_TRY(device->check_memory({.name = plan.tensors[slot].name,
                                       .address = tensors.address[slot],
                                       .bytes = tensors.bytes[slot]}));
  return {};
}

Result<void> PreparedLayer::Impl::launch(std::size_t index, const BoundTensors& tensors,
                                         Stream stream) const {
  auto launched = calls[index].launch(*device, tensors, stream);
  if (!launched)
    launched.error().message =
        fmt::format("kernel {}: {}", plan.kernels[index].operation, launched.error().message);
  return launched;
}

Result<void> PreparedLayer::Impl::run(const CallPart& part, std::optional<GradientMode> mode,
                                      const BoundTensors& tensors, Stream stream,
                                      LaunchObserver* observer) {
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const compiler::KernelPlan& kernel = plan.kernels[i];
    if (kernel.phase != part.phase || (part.half && kernel.half != part.half)) continue;
    if (kernel.gradient_mode && kernel.gradient_mode != mode) continue;
    if (observer != nullptr) MOEJIT_TRY(observer->before(i));
    MOEJIT_TRY(launch(i, tensors, stream));
    if (observer != nullptr) MOEJIT_TRY(observer->after(i));
  }
  return {};
}

Result<void> PreparedLayer::Impl::check_backward(std::optional<BackwardHalf> half,
                                                 std::optional<GradientMode> mode) const {
  if (!has_backward(plan.layer))
    return fail(Stage::kLaunch, ErrorCode::kUnsupported,
                fmt::format("{} has no backward pass", plan.subject),
                "add \"backward\" to \"passes\" in its description");
  if (half && !plan.layer.backward_halves)
    return fail(Stage::kLaunch, ErrorCode::kUnsupported,
                fmt::format("the backward pass of {} has no halves", plan.subject),
                "add \"backward_halves\": true to its description, or run all of it at once");
  if (mode == GradientMode::kAdd && !adds_gradients(plan.layer))
    return fail(Stage::kLaunch, ErrorCode::kUnsupported,
                fmt::format("{} writes dw1 and dw2 in bf16 and adds nothing to them", plan.subject),
                "overwrite them, or leave \"wgrad_dtype\" out of its description");
  return {};
}

Result<void> PreparedLayer::Impl::backward(std::optional<BackwardHalf> half,
                                           std::optional<GradientMode> mode,
                                           std::span<const TensorRef> tensors,
                                           const CallMemory& memory, Stream stream,
                                           LaunchObserver* observer) {
  MOEJIT_TRY(check_backward(half, mode));
  const CallPart part{Phase::kBackward, half};
  BoundTensors bound;
  MOEJIT_TRY(bind(part, tensors, memory, bound));
  return run(part, mode, bound, stream, observer);
}

Result<std::unique_ptr<PreparedLayer>> PreparedLayer::prepare(const compiler::LayerPlan& plan,
                                                              Engine& engine, Device& device,
                                                              const PrepareOptions& options) {
  if (plan.target != device.target())
    return fail(Stage::kLoad, ErrorCode::kUnsupported,
                fmt::format("{} is planned for {}, wanted {} for the device {}", plan.subject,
                            to_string(plan.target), to_string(device.target()), device.name()));
  MOEJIT_TRY_ASSIGN(compiler::MemoryLayout layout, compiler::MemoryLayout::make(plan));
  MOEJIT_TRY_ASSIGN(const std::vector<ObtainedKernel> kernels,
                    obtain_kernels(plan, engine, options));
  auto impl = std::make_unique<Impl>();
  impl->plan = plan;
  impl->layout = std::move(layout);
  impl->device = &device;
  for (const CallPart& part : kCallParts)
    impl->part_tensors[index_of(part)] = {.all = tensors_of_call(plan, part),
                                          .written = tensors_written(plan, part),
                                          .shapes = tensors_of_shape(plan, part)};
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    MOEJIT_TRY_ASSIGN(auto loaded, device.load(*kernels[i].binary));
    MOEJIT_TRY_ASSIGN(KernelCall call, KernelCall::resolve(impl->plan, i, std::move(loaded)));
    impl->calls.push_back(std::move(call));
  }
  return std::unique_ptr<PreparedLayer>(new PreparedLayer(std::move(impl)));
}

PreparedLayer::PreparedLayer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PreparedLayer::~PreparedLayer() = default;

const compiler::LayerPlan& PreparedLayer::plan() const { return impl_->plan; }

int64_t PreparedLayer::workspace_bytes() const { return impl_->plan.workspace_bytes; }
int64_t PreparedLayer::saved_bytes() const { return impl_->plan.saved_bytes; }
int64_t PreparedLayer::deferred_bytes() const { return impl_->plan.deferred_bytes; }

Result<compiler::MemorySizes> PreparedLayer::sizes(int64_t tokens) const {
  return impl_->layout.sizes(tokens);
}

const compiler::MemoryLayout& PreparedLayer::layout() const { return impl_->layout; }

Result<void> PreparedLayer::update_weights(std::span<const TensorRef> tensors, Stream stream,
                                           LaunchObserver* observer) {
  BoundTensors bound;
  MOEJIT_TRY(impl_->bind({Phase::kWeights}, tensors, {}, bound));
  return impl_->run({Phase::kWeights}, std::nullopt, bound, stream, observer);
}

Result<void> PreparedLayer::forward(std::span<const TensorRef> tensors, const CallMemory& memory,
                                    Stream stream, LaunchObserver* observer) {
  BoundTensors bound;
  MOEJIT_TRY(impl_->bind({Phase::kForward}, tensors, memory, bound));
  return impl_->run({Phase::kForward}, std::nullopt, bound, stream, observer);
}

Result<void> PreparedLayer::backward(std::span<const TensorRef> tensors, GradientMode mode,
                                     const CallMemory& memory, Stream stream,
                                     LaunchObserver* observer) {
  return impl_->backward(std::nullopt, mode, tensors, memory, stream, observer);
}

Result<void> PreparedLayer::backward_data(std::span<const TensorRef> tensors,
                                          const CallMemory& memory, Stream stream,
                                          LaunchObserver* observer) {
  return impl_->backward(BackwardHalf::kData, std::nullopt, tensors, memory, stream, observer);
}

Result<void> PreparedLayer::backward_weights(std::span<const TensorRef> tensors, GradientMode mode,
                                             const CallMemory& memory, Stream stream,
                                             LaunchObserver* observer) {
  return impl_->backward(BackwardHalf::kWeights, mode, tensors, memory, stream, observer);
}

Result<void> PreparedLayer::launch_kernel(std::size_t index, std::span<const TensorRef> tensors,
                                          const CallMemory& memory, Stream stream) {
  if (index >= impl_->calls.size())
    return fail(Stage::kLaunch, ErrorCode::kInternal,
                fmt::format("kernel {} of {}: the plan has {}", index, impl_->plan.subject,
                            impl_->calls.size()));
  BoundTensors bound;
  MOEJIT_TRY(impl_->bind({impl_->plan.kernels[index].phase}, tensors, memory, bound));
  return impl_->launch(index, bound, stream);
}

}  // namespace moejit::runtime
