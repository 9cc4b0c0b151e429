// SPDX-License-Identifier: Apache-2.0
#include "runtime/prepared_layer.h"

#include "compiler/group_plan.h"
#include "runtime/launch/bound_tensors.h"
#include "runtime/launch/saved_tokens.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::runtime {
namespace {

using compiler::BackwardHalf;
using compiler::DispatchCall;
using compiler::GradientMode;
using compiler::LayerPlan;
using compiler::Phase;

// Returns whether the part has a kernel. A half without kernels has no tensors that tell T.
bool has_kernels(const LayerPlan& plan, const CallPart& part) {
  return std::ranges::any_of(
      plan.kernels, [&](const compiler::KernelPlan& kernel) { return is_of_part(kernel, part); });
}

}  // namespace

Result<std::unique_ptr<PreparedLayer>> PreparedLayer::prepare(const LayerPlan& plan, Engine& engine,
                                                              Device& device,
                                                              const PrepareOptions& options) {
  MOEJIT_TRY(check_is_of_one_rank(plan.layer));
  std::unique_ptr<PreparedLayer> layer(new PreparedLayer);
  layer->plan_ = std::make_shared<const LayerPlan>(plan);
  MOEJIT_TRY_ASSIGN(layer->prepared_, PreparedPlan::prepare(layer->plan_, engine, device, options));
  layer->reads_saved_block_ = device.is_host_memory();
  return layer;
}

PreparedLayer::~PreparedLayer() = default;

const LayerPlan& PreparedLayer::plan() const { return *plan_; }

int64_t PreparedLayer::workspace_bytes() const { return plan_->workspace_bytes; }
int64_t PreparedLayer::saved_bytes() const { return plan_->saved_bytes; }
int64_t PreparedLayer::deferred_bytes() const { return plan_->deferred_bytes; }

Result<compiler::MemorySizes> PreparedLayer::sizes(int64_t tokens) const {
  return prepared_->layout().sizes(tokens);
}

const compiler::MemoryLayout& PreparedLayer::layout() const { return prepared_->layout(); }

Result<void> PreparedLayer::bind(const CallPart& part, std::span<const TensorRef> tensors,
                                 const CallMemory& memory, BoundTensors& bound) const {
  MOEJIT_TRY(prepared_->bind(part, tensors, memory, bound));
  const bool has_saved =
      part.phase == Phase::kBackward && part.dispatch_call != DispatchCall::kQuantize;
  if (!has_saved || !reads_saved_block_ || !has_kernels(*plan_, part)) return {};
  return check_saved_tokens(*plan_, bound);
}

Result<void> PreparedLayer::run(const CallPart& part, std::optional<GradientMode> mode,
                                std::span<const TensorRef> tensors, const CallMemory& memory,
                                Stream stream, LaunchObserver* observer) {
  BoundTensors bound;
  MOEJIT_TRY(bind(part, tensors, memory, bound));
  return prepared_->run(part, mode, bound, stream, observer);
}

Result<void> PreparedLayer::update_weights(std::span<const TensorRef> tensors, Stream stream,
                                           LaunchObserver* observer) {
  return run({Phase::kWeights}, std::nullopt, tensors, {}, stream, observer);
}

Result<void> PreparedLayer::update_scales(compiler::Pass pass, std::span<const TensorRef> tensors,
                                          Stream stream, LaunchObserver* observer) {
  const bool is_backward = pass == compiler::Pass::kBackward;
  if (is_backward) MOEJIT_TRY(check_backward(std::nullopt, std::nullopt));
  return run({is_backward ? Phase::kBackwardScales : Phase::kForwardScales}, std::nullopt, tensors,
             {}, stream, observer);
}

Result<void> PreparedLayer::forward(std::span<const TensorRef> tensors, const CallMemory& memory,
                                    Stream stream, LaunchObserver* observer) {
  return run({Phase::kForward}, std::nullopt, tensors, memory, stream, observer);
}

Result<void> PreparedLayer::check_backward(std::optional<BackwardHalf> half,
                                           std::optional<GradientMode> mode) const {
  if (!has_backward(plan_->layer))
    return fail(Stage::kLaunch, ErrorCode::kUnsupported,
                fmt::format("{} has no backward pass", plan_->subject),
                "add \"backward\" to \"passes\" in its description");
  if (half && !plan_->layer.backward_halves)
    return fail(Stage::kLaunch, ErrorCode::kUnsupported,
                fmt::format("the backward pass of {} has no halves", plan_->subject),
                "add \"backward_halves\": true to its description, or run all of it at once");
  if (mode == GradientMode::kAdd && !adds_gradients(plan_->layer))
    return fail(
        Stage::kLaunch, ErrorCode::kUnsupported,
        fmt::format("{} writes dw1 and dw2 in bf16 and adds nothing to them", plan_->subject),
        "overwrite them, or leave \"wgrad_dtype\" out of its description");
  return {};
}

Result<void> PreparedLayer::run_backward(std::optional<BackwardHalf> half,
                                         std::optional<GradientMode> mode,
                                         std::span<const TensorRef> tensors,
                                         const CallMemory& memory, Stream stream,
                                         LaunchObserver* observer) {
  MOEJIT_TRY(check_backward(half, mode));
  return run({Phase::kBackward, half}, mode, tensors, memory, stream, observer);
}

Result<void> PreparedLayer::backward(std::span<const TensorRef> tensors, GradientMode mode,
                                     const CallMemory& memory, Stream stream,
                                     LaunchObserver* observer) {
  return run_backward(std::nullopt, mode, tensors, memory, stream, observer);
}

Result<void> PreparedLayer::backward_data(std::span<const TensorRef> tensors,
                                          const CallMemory& memory, Stream stream,
                                          LaunchObserver* observer) {
  return run_backward(BackwardHalf::kData, std::nullopt, tensors, memory, stream, observer);
}

Result<void> PreparedLayer::backward_weights(std::span<const TensorRef> tensors, GradientMode mode,
                                             const CallMemory& memory, Stream stream,
                                             LaunchObserver* observer) {
  return run_backward(BackwardHalf::kWeights, mode, tensors, memory, stream, observer);
}

Result<void> PreparedLayer::check_dispatch_calls() const {
  if (plan_->layer.dispatch_calls) return {};
  return fail(Stage::kLaunch, ErrorCode::kUnsupported,
              fmt::format("{} has no calls before and after a dispatch", plan_->subject),
              "add \"dispatch_calls\": true to its description, or run all of a pass at once");
}

Result<void> PreparedLayer::quantize(std::span<const TensorRef> tensors, const CallMemory& memory,
                                     Stream stream, LaunchObserver* observer) {
  MOEJIT_TRY(check_dispatch_calls());
  return run({Phase::kForward, {}, DispatchCall::kQuantize}, {}, tensors, memory, stream, observer);
}

Result<void> PreparedLayer::experts(std::span<const TensorRef> tensors, const CallMemory& memory,
                                    Stream stream, LaunchObserver* observer) {
  MOEJIT_TRY(check_dispatch_calls());
  return run({Phase::kForward, {}, DispatchCall::kExperts}, {}, tensors, memory, stream, observer);
}

Result<void> PreparedLayer::quantize_grad(std::span<const TensorRef> tensors,
                                          const CallMemory& memory, Stream stream,
                                          LaunchObserver* observer) {
  MOEJIT_TRY(check_dispatch_calls());
  MOEJIT_TRY(check_backward(std::nullopt, std::nullopt));
  return run({Phase::kBackward, {}, DispatchCall::kQuantize}, {}, tensors, memory, stream,
             observer);
}

Result<void> PreparedLayer::experts_grad(std::span<const TensorRef> tensors, GradientMode mode,
                                         const CallMemory& memory, Stream stream,
                                         LaunchObserver* observer) {
  MOEJIT_TRY(check_dispatch_calls());
  MOEJIT_TRY(check_backward(std::nullopt, mode));
  return run({Phase::kBackward, {}, DispatchCall::kExperts}, mode, tensors, memory, stream,
             observer);
}

Result<void> PreparedLayer::launch_kernel(std::size_t index, std::span<const TensorRef> tensors,
                                          const CallMemory& memory, Stream stream) {
  if (index >= plan_->kernels.size())
    return fail(Stage::kLaunch, ErrorCode::kInternal,
                fmt::format("kernel {} of {}: the plan has {}", index, plan_->subject,
                            plan_->kernels.size()));
  BoundTensors bound;
  const compiler::KernelPlan& kernel = plan_->kernels[index];
  MOEJIT_TRY(bind({kernel.phase, {}, kernel.dispatch_call}, tensors, memory, bound));
  return prepared_->launch(index, bound, stream);
}

}  // namespace moejit::runtime
