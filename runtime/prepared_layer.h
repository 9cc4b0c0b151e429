// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compiler.h"
#include "runtime/prepared_plan.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

namespace moejit::runtime {

// A layer whose kernels are compiled, loaded and ready: the phases and halves of its prepared plan,
// which says what holds for every call.
class PreparedLayer {
 public:
  // Prepares the layer's plan, with the errors of PreparedPlan::prepare(). The device has to
  // outlive the layer.
  static Result<std::unique_ptr<PreparedLayer>> prepare(const compiler::LayerPlan& plan,
                                                        Engine& engine, Device& device,
                                                        const PrepareOptions& options = {});
  ~PreparedLayer();
  PreparedLayer(const PreparedLayer&) = delete;
  PreparedLayer& operator=(const PreparedLayer&) = delete;

  const compiler::LayerPlan& plan() const;

  // Return the bytes of a workspace that every call can use, and those that a forward() leaves for
  // its backward(); 0 without backward.
  int64_t workspace_bytes() const;
  int64_t saved_bytes() const;
  // Returns the bytes of all blocks that a call over T tokens needs, no more than those of the
  // plan. Error kInvalidValue: T less than 0 or more than max_tokens.
  Result<compiler::MemorySizes> sizes(int64_t tokens) const;
  // Tells where the tensors are in the blocks, which hold the intermediates after a call.
  const compiler::MemoryLayout& layout() const;
  // Returns the bytes that a backward_data() leaves for its backward_weights(); 0 without halves.
  int64_t deferred_bytes() const;

  // Quantises w1 and w2 [kWeight tensors of the plan] into the kQuantized tensors, all named in
  // `tensors`. Once after each change of the weights; checkpoints that are quantised already skip
  // it. `skip_update` U32 [1] may be among them: where the device finds another value than 0 there
  // when the kernels run, they leave the quantised weights as they are.
  Result<void> update_weights(std::span<const TensorRef> tensors, Stream stream,
                              LaunchObserver* observer = nullptr);

  // Runs one forward pass, whose kInput, kQuantized and kOutput tensors are in `tensors`. `status`
  // U32 [1] is one of the outputs: kernels or their status bits into it (params/route_params.h);
  // the caller clears and reads it when it likes.
  Result<void> forward(std::span<const TensorRef> tensors, const CallMemory& memory, Stream stream,
                       LaunchObserver* observer = nullptr);

  // Runs the backward pass of the forward pass that filled memory.saved, with the same T: dy and
  // the column-wise quantised weights give the gradients of the plan. Those of weights and biases
  // are overwritten (zeros for experts without tokens) or, with kAdd, added to. `status` may be
  // left out. Where T is another one, a GPU's kernels compute nothing and set kStatusOtherTokens in
  // `status`; error kTensorMismatch where the host can read what was saved. Error kUnsupported: the
  // layer's passes have no backward, or kAdd where its gradients are bf16.
  Result<void> backward(std::span<const TensorRef> tensors, compiler::GradientMode mode,
                        const CallMemory& memory, Stream stream,
                        LaunchObserver* observer = nullptr);

  // Run the halves of backward(), in this order and with the same T. Bit for bit they give the same
  // gradients: the data half dx and dprobs, the weights half, from what the data half has left in
  // memory.deferred, those of weights and biases. Each needs the tensors of its own kernels only.
  // The weights half also needs dy, which tells T and may have any address where no kernel reads it
  // (is_used_for_shape() of the plan). What was saved stays as it is until the weights half is
  // done. Where a half has no kernels it does nothing. Error kUnsupported: those of backward(), and
  // a layer without backward_halves.
  Result<void> backward_data(std::span<const TensorRef> tensors, const CallMemory& memory,
                             Stream stream, LaunchObserver* observer = nullptr);
  Result<void> backward_weights(std::span<const TensorRef> tensors, compiler::GradientMode mode,
                                const CallMemory& memory, Stream stream,
                                LaunchObserver* observer = nullptr);

  // Run the passes in parts, of layers with dispatch_calls: quantize() makes the kDispatched
  // tensors of a rank's own tokens, whose rows the host then moves to the ranks of their experts;
  // experts() does the rest for the T rows that came there. quantize_grad() and experts_grad() do
  // so for dy. With nothing moved in between they give the bits of forward() and backward(). What
  // only quantizes uses no memory: any may be given. Error kUnsupported: those of backward(), and a
  // layer without dispatch_calls.
  Result<void> quantize(std::span<const TensorRef> tensors, const CallMemory& memory, Stream stream,
                        LaunchObserver* observer = nullptr);
  Result<void> experts(std::span<const TensorRef> tensors, const CallMemory& memory, Stream stream,
                       LaunchObserver* observer = nullptr);
  Result<void> quantize_grad(std::span<const TensorRef> tensors, const CallMemory& memory,
                             Stream stream, LaunchObserver* observer = nullptr);
  Result<void> experts_grad(std::span<const TensorRef> tensors, compiler::GradientMode mode,
                            const CallMemory& memory, Stream stream,
                            LaunchObserver* observer = nullptr);

  // Launches plan().kernels[index] alone, as PreparedPlan::launch() does: the tensors, checks,
  // parameters and CTAs are those of the call that it belongs to, update_weights() (which uses no
  // memory: any may be given), forward() or backward(). Error kInternal: no such index.
  Result<void> launch_kernel(std::size_t index, std::span<const TensorRef> tensors,
                             const CallMemory& memory, Stream stream);

 private:
  PreparedLayer() = default;
  // Tell why there is no such call, if there is none.
  Result<void> check_backward(std::optional<compiler::BackwardHalf> half,
                              std::optional<compiler::GradientMode> mode) const;
  Result<void> check_dispatch_calls() const;
  Result<void> bind(const CallPart& part, std::span<const TensorRef> tensors,
                    const CallMemory& memory, BoundTensors& bound) const;
  Result<void> run(const CallPart& part, std::optional<compiler::GradientMode> mode,
                   std::span<const TensorRef> tensors, const CallMemory& memory, Stream stream,
                   LaunchObserver* observer);
  Result<void> run_backward(std::optional<compiler::BackwardHalf> half,
                            std::optional<compiler::GradientMode> mode,
                            std::span<const TensorRef> tensors, const CallMemory& memory,
                            Stream stream, LaunchObserver* observer);

  std::shared_ptr<const compiler::LayerPlan> plan_;
  std::unique_ptr<PreparedPlan> prepared_;
  bool reads_saved_block_ = false;  // the host can
};

}  // namespace moejit::runtime
