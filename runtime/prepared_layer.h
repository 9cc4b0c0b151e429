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

// A layer whose kernels are compiled, loaded and ready. It runs the phases and halves of a
// PreparedPlan, whose comments hold for every call.
class PreparedLayer {
 public:
  // Prepares the layer's plan, with the errors of PreparedPlan::prepare(), and kUnsupported for a
  // layer of a group, which GroupLayer runs. The device has to outlive the layer.
  static Result<std::unique_ptr<PreparedLayer>> prepare(const compiler::LayerPlan& plan,
                                                        Engine& engine, Device& device,
                                                        const PrepareOptions& options = {});
  ~PreparedLayer();
  PreparedLayer(const PreparedLayer&) = delete;
  PreparedLayer& operator=(const PreparedLayer&) = delete;

  const compiler::LayerPlan& plan() const;

  // Return the bytes of a workspace that every call can use, and the bytes that a forward() leaves
  // for its backward(); 0 without backward.
  int64_t workspace_bytes() const;
  int64_t saved_bytes() const;
  // Returns the bytes of all blocks that a call over T tokens needs, no more than the plan's. Error
  // kInvalidValue: T less than 0 or more than max_tokens.
  Result<compiler::MemorySizes> sizes(int64_t tokens) const;
  // Returns where the tensors are in the blocks, which hold the intermediates after a call.
  const compiler::MemoryLayout& layout() const;
  // Returns the bytes that a backward_data() leaves for its backward_weights(); 0 without halves.
  int64_t deferred_bytes() const;

  // Quantizes w1 and w2 [kWeight tensors of the plan] into the kQuantized tensors, all named in
  // `tensors`. Must be called once after each change of the weights, but not for checkpoints that
  // are quantized already. `skip_update` U32 [1] may be among the tensors: if its value on the
  // device is not 0 when the kernels run, they leave the quantized weights as they are. Layers with
  // weight_checks also leave them so if the weights are as `weights_digest` has seen them; zeros
  // there have seen nothing.
  Result<void> update_weights(std::span<const TensorRef> tensors, Stream stream,
                              LaunchObserver* observer = nullptr);

  // Moves the kState tensors of a pass on by a step: the largest magnitudes of its calls since the
  // last update join the history, and the scales of the next step follow. Must be called once a
  // step, behind the last call of the pass; row 0 of the histories may be reduced over ranks before
  // (max). Does nothing with recipes without a history. Error kUnsupported: kBackward, if the
  // layer's passes have no backward.
  Result<void> update_scales(compiler::Pass pass, std::span<const TensorRef> tensors, Stream stream,
                             LaunchObserver* observer = nullptr);

  // Runs one forward pass, whose kInput, kQuantized, kState and kOutput tensors are in `tensors`.
  // Casts raise row 0 of the kState histories to the largest magnitudes they see. `status`
  // U32 [1] is one of the outputs: kernels or their status bits into it (params/route_params.h);
  // the caller clears and reads it when it likes.
  Result<void> forward(std::span<const TensorRef> tensors, const CallMemory& memory, Stream stream,
                       LaunchObserver* observer = nullptr);

  // Runs the backward pass of the forward pass that filled memory.saved, with the same T: dy and
  // the column-wise quantized weights give the gradients of the plan. Gradients of weights and
  // biases are overwritten (zeros for experts without tokens) or, with kAdd, added to. `status` may
  // be left out. If T differs, a GPU's kernels compute nothing and set kStatusOtherTokens in
  // `status`; if the host can read the saved block, the call returns error kTensorMismatch. Error
  // kUnsupported: the layer's passes have no backward, or kAdd if its gradients are bf16.
  Result<void> backward(std::span<const TensorRef> tensors, compiler::GradientMode mode,
                        const CallMemory& memory, Stream stream,
                        LaunchObserver* observer = nullptr);

  // Run the halves of backward(), in this order and with the same T. They give the same gradients
  // bit for bit: the data half gives dx and dprobs; the weights half gives those of weights and
  // biases, from what the data half has left in memory.deferred. Each half needs only the tensors
  // of its own kernels. The weights half also needs dy, which tells T and may have any address if
  // no kernel reads it (is_used_for_shape() of the plan). The saved block must keep its contents
  // until the weights half is done. A half without kernels does nothing. Error kUnsupported: as for
  // backward(), and a layer without backward_halves.
  Result<void> backward_data(std::span<const TensorRef> tensors, const CallMemory& memory,
                             Stream stream, LaunchObserver* observer = nullptr);
  Result<void> backward_weights(std::span<const TensorRef> tensors, compiler::GradientMode mode,
                                const CallMemory& memory, Stream stream,
                                LaunchObserver* observer = nullptr);

  // Run the passes of layers with dispatch_calls in parts: quantize() makes the kDispatched tensors
  // of a rank's own tokens, whose rows the host then moves to the ranks of their experts; experts()
  // does the rest for the T rows that arrived there. quantize_grad() and experts_grad() do so for
  // dy. If nothing is moved in between, they give the bits of forward() and backward(). The calls
  // that only quantize use no memory: any may be given. Error kUnsupported: as for backward(), and
  // a layer without dispatch_calls.
  Result<void> quantize(std::span<const TensorRef> tensors, const CallMemory& memory, Stream stream,
                        LaunchObserver* observer = nullptr);
  Result<void> experts(std::span<const TensorRef> tensors, const CallMemory& memory, Stream stream,
                       LaunchObserver* observer = nullptr);
  Result<void> quantize_grad(std::span<const TensorRef> tensors, const CallMemory& memory,
                             Stream stream, LaunchObserver* observer = nullptr);
  Result<void> experts_grad(std::span<const TensorRef> tensors, compiler::GradientMode mode,
                            const CallMemory& memory, Stream stream,
                            LaunchObserver* observer = nullptr);

  // Launches plan().kernels[index] alone, as PreparedPlan::launch() does. The tensors, checks,
  // parameters and CTAs are those of the kernel's call: update_weights() (which uses no memory: any
  // may be given), forward() or backward(). Error kInternal: no such index.
  Result<void> launch_kernel(std::size_t index, std::span<const TensorRef> tensors,
                             const CallMemory& memory, Stream stream);

 private:
  PreparedLayer() = default;
  // Return an error that says why there is no such call, if there is none.
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
  bool reads_saved_block_ = false;  // whether the host can read the saved block
};

}  // namespace moejit::runtime
