// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/torch/layers.h"
#include "runtime/bindings/torch/tensor.h"

#include <array>

namespace moejit::torch {

// One call of a layer while its tensors are gathered. Names and tensors that are added have to
// outlive it.
class Call {
 public:
  // Makes a call over so many tokens, which goes to the current stream of the layer's device.
  Call(const ReadyLayer& ready, DLDevice device, int64_t tokens);

  void add(const char* name, const Tensor& tensor);
  // Adds a tensor that the call only reads. If kernels cannot read it where it is, as in x[1:], a
  // copy is added. Weights that GEMMs read are added as they are: a copy in each call would be too
  // dear.
  void add_input(const char* name, const Tensor& tensor);
  // Adds a tensor. One without elements stands for an absent tensor, such as absent biases, and is
  // not added.
  void add_unless_empty(const char* name, const Tensor& tensor);
  void add_input_unless_empty(const char* name, const Tensor& tensor);
  // Adds the quantized weights of a block that a function uses, one of MOEJIT_USED_BY_FORWARD, ...
  // Throws if the block has other bytes. A block that the function does not use may be any tensor.
  void add_quantized(const char* name, const Tensor& block, const QuantizedBlock& planned,
                     uint32_t function);
  // Allocates the workspace, and keeps it until the call ends.
  void allocate_workspace();
  // Sets the saved block; throws if its size is not the one that the call needs.
  void set_saved(const Tensor& block);
  // Sets the deferred block in the same way.
  void set_deferred(const Tensor& block);
  // Allocates the deferred block of a backward call that is not in halves, if the layer has one.
  void allocate_deferred();
  // Adds a tensor of which the call reads only the shape, the shape of `like`. At most one may be
  // added.
  void add_shape(const char* name, const PlannedTensor& like);

  // Returns the bytes of the call's blocks.
  const moejit_plan_sizes& sizes() const { return sizes_; }
  const moejit_call* get() const { return &call_; }

 private:
  static constexpr std::size_t kMostTensors = 48;
  static constexpr std::size_t kMostSlices = 24;
  static constexpr std::size_t kMostInputs = 6;  // x, dy, routing, biases; or weights, skip_update

  const ReadyLayer& ready_;
  DLDevice device_;
  int64_t tokens_;
  moejit_plan_sizes sizes_;
  moejit_call call_{};
  std::array<moejit_tensor, kMostTensors> tensors_;
  std::array<DLTensor, kMostSlices> slices_;
  std::size_t slice_count_ = 0;
  std::array<Tensor, kMostInputs> copies_;
  std::size_t copy_count_ = 0;
  DLTensor shape_only_{};
  std::array<int64_t, 4> shape_{};
  Tensor workspace_;
  Tensor deferred_;
};

// Returns a block of bytes from torch's allocator. On the CPU, and on GPUs after
// fill_blocks_of_gpus(true), its bytes are 0. So bytes that no kernel writes are the same from call
// to call.
Tensor make_block(int64_t bytes, DLDevice device);

void fill_blocks_of_gpus(bool fills);

// Whether results on this device begin as zeros.
bool fills_blocks(DLDevice device);

// Set bytes of a tensor on the device to 0, in order with the current stream: all, or so many from
// a byte on.
void clear(const Tensor& tensor, moejit_device* device);
void clear(const Tensor& tensor, moejit_device* device, int64_t first, int64_t bytes);

// Returns the layer's output of this name for a call over so many tokens, uninitialized. If the
// plan has no such output, returns a tensor without elements.
Tensor make_output(const ReadyLayer& ready, const char* name, int64_t tokens, DLDevice device);

// Returns a status word that is 0 when the call's kernels run.
Tensor make_status(const ReadyLayer& ready, DLDevice device);

// Returns the current stream of torch on the device; NULL on the CPU.
void* current_stream(DLDevice device);

}  // namespace moejit::torch
