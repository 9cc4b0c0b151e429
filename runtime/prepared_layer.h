// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compiler.h"
#include "runtime/prepared_plan.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace moejit::runtime {

// A prepared layer, of one rank or of a rank of a group: a PreparedPlan with a function for each
// call of a layer.
class PreparedLayer {
 public:
  using Tensors = std::span<const TensorRef>;

  // Prepare the layer's plan for a device, which has to outlive the layer, or on the device of a
  // group. Errors: all of PreparedPlan::prepare(); kUnsupported for a layer of a group that is
  // given a device instead of a group.
  static Result<std::unique_ptr<PreparedLayer>> prepare(const compiler::LayerPlan& plan,
                                                        Engine& engine, Device& device,
                                                        const PrepareOptions& options = {});
  static Result<std::unique_ptr<PreparedLayer>> prepare(const compiler::GroupPlan& plan,
                                                        Group& group, Engine& engine,
                                                        const PrepareOptions& options = {});

  const compiler::LayerPlan& plan() const { return *plan_; }
  PreparedPlan& prepared() { return *prepared_; }

  // Return the bytes of blocks that are large enough for every call.
  int64_t workspace_bytes() const { return plan_->workspace_bytes; }
  int64_t saved_bytes() const { return plan_->saved_bytes; }
  int64_t deferred_bytes() const { return plan_->deferred_bytes; }
  // Returns the bytes of all blocks that a call over T tokens needs. They are at most the plan's.
  // Error kInvalidValue: T less than 0 or more than max_tokens.
  Result<compiler::MemorySizes> sizes(int64_t tokens) const {
    return prepared_->layout().sizes(tokens);
  }
  const compiler::MemoryLayout& layout() const { return prepared_->layout(); }

  Result<void> update_weights(Tensors tensors, Stream stream, LaunchObserver* observer = nullptr) {
    return prepared_->call("update_weights", tensors, {}, stream, observer);
  }
  Result<void> update_scales(compiler::Pass pass, Tensors tensors, Stream stream,
                             LaunchObserver* observer = nullptr) {
    return prepared_->call(
        pass == compiler::Pass::kBackward ? "update_backward_scales" : "update_forward_scales",
        tensors, {}, stream, observer);
  }
  Result<void> forward(Tensors tensors, const CallMemory& memory, Stream stream,
                       LaunchObserver* observer = nullptr) {
    return prepared_->call("forward", tensors, memory, stream, observer);
  }
  Result<void> backward(Tensors tensors, compiler::GradientMode mode, const CallMemory& memory,
                        Stream stream, LaunchObserver* observer = nullptr) {
    return prepared_->call(adds(mode) ? "backward+add" : "backward", tensors, memory, stream,
                           observer);
  }
  Result<void> backward_data(Tensors tensors, const CallMemory& memory, Stream stream,
                             LaunchObserver* observer = nullptr) {
    return prepared_->call("backward_data", tensors, memory, stream, observer);
  }
  Result<void> backward_weights(Tensors tensors, compiler::GradientMode mode,
                                const CallMemory& memory, Stream stream,
                                LaunchObserver* observer = nullptr) {
    return prepared_->call(adds(mode) ? "backward_weights+add" : "backward_weights", tensors,
                           memory, stream, observer);
  }
  Result<void> quantize(Tensors tensors, const CallMemory& memory, Stream stream,
                        LaunchObserver* observer = nullptr) {
    return prepared_->call("quantize", tensors, memory, stream, observer);
  }
  Result<void> experts(Tensors tensors, const CallMemory& memory, Stream stream,
                       LaunchObserver* observer = nullptr) {
    return prepared_->call("experts", tensors, memory, stream, observer);
  }
  Result<void> quantize_grad(Tensors tensors, const CallMemory& memory, Stream stream,
                             LaunchObserver* observer = nullptr) {
    return prepared_->call("quantize_grad", tensors, memory, stream, observer);
  }
  Result<void> experts_grad(Tensors tensors, compiler::GradientMode mode, const CallMemory& memory,
                            Stream stream, LaunchObserver* observer = nullptr) {
    return prepared_->call(adds(mode) ? "experts_grad+add" : "experts_grad", tensors, memory,
                           stream, observer);
  }
  Result<void> launch_kernel(std::size_t index, Tensors tensors, const CallMemory& memory,
                             Stream stream) {
    return prepared_->launch(index, tensors, memory, stream);
  }

 private:
  PreparedLayer() = default;
  static bool adds(compiler::GradientMode mode) { return mode == compiler::GradientMode::kAdd; }

  std::shared_ptr<const compiler::LayerPlan> plan_;
  std::unique_ptr<PreparedPlan> prepared_;
};

}  // namespace moejit::runtime
