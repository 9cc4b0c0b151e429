// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compiler.h"
#include "compiler/memory_layout.h"
#include "runtime/device.h"
#include "runtime/engine.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace moejit::runtime {

// Device memory under the name that the plan gives it. `shape` is checked against the plan: a
// symbol such as T may be smaller than its bound, everything else must be equal.
struct TensorRef {
  std::string_view name;
  compiler::DType dtype = compiler::DType::kU8;
  std::span<const int64_t> shape;
  void* data = nullptr;  // 16-byte aligned; may be null where the tensor has no elements
};

// The blocks of memory that a call uses beside its tensors. Their addresses are multiples of the
// device's block_alignment(), and they have at least the bytes that PreparedLayer::sizes() says for
// the T of the call. The workspace is free again when the call is done. The saved block has to keep
// its contents from a forward to its backward call, or to the weights half of that, and may be null
// for layers without backward; the deferred block has to keep its own from a data half to its
// weights half, and may be null but for backward calls of layers with halves. Copies of them
// elsewhere are as good, for contents do not depend on addresses.
struct CallMemory {
  void* workspace = nullptr;
  int64_t workspace_bytes = 0;
  void* saved = nullptr;
  int64_t saved_bytes = 0;
  void* deferred = nullptr;
  int64_t deferred_bytes = 0;
};

// Is called before and after each kernel of a call, with its index into Plan::kernels, for tools
// that time or dump.
class LaunchObserver {
 public:
  virtual ~LaunchObserver() = default;
  virtual Result<void> before(size_t kernel_index) = 0;
  virtual Result<void> after(size_t kernel_index) = 0;
};

// How to prepare a layer. What was compiled before an interruption stays in engine and cache.
struct PrepareOptions {
  ObtainOptions patience;  // deadline, and a wish to stop
  // Called on the preparing thread with the number of kernels that are there, from 0 to all.
  std::function<void(std::size_t)> progress;
};

// A layer whose kernels are compiled, loaded and ready. After prepare() nothing is compiled,
// loaded, allocated or locked, and the host never waits for the device, so calls can be recorded
// into a CUDA graph and replayed with other routings. Calls on different streams with different
// workspaces may overlap. It may be destroyed while its kernels run, or are part of graphs.
class PreparedLayer {
 public:
  // Emits the plan's kernels, gets their machine code from the engine (several at once), and loads
  // them. The device has to outlive the layer. Errors: of the compiler, the cache and the device;
  // kUnsupported where the plan is for another target; kInterrupted where the options say so.
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

  // Launches plan().kernels[index] alone, for tools that time one kernel: the tensors, checks,
  // parameters and CTAs are those of the call that it belongs to, update_weights() (which uses no
  // memory: any may be given), forward() or backward(). It reads what the kernels before it in the
  // plan left in the tensors and in memory, where a later kernel may have put something else since.
  // So launch in the order of the plan, each kernel as often as you like before the next: launching
  // one again changes nothing, except that gradients which are added to grow. Error kInternal: no
  // such index.
  Result<void> launch_kernel(std::size_t index, std::span<const TensorRef> tensors,
                             const CallMemory& memory, Stream stream);

 private:
  struct Impl;
  explicit PreparedLayer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moejit::runtime
