// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/graph/plans.h"
#include "runtime/bindings/torch/tensor.h"

#include <array>
#include <optional>
#include <vector>

namespace moejit::torch {

// The sizes of a call, read from the tensors that it gets.
class CallSizes {
 public:
  // Throws if a dimension exceeds its bound. The call itself checks the number of dimensions and
  // all other sizes.
  void read(const PlannedTensor& planned, const Tensor& tensor);
  std::optional<int64_t> of(CallDim dim) const { return told_[static_cast<std::size_t>(dim)]; }
  // Returns T; P if no tensor has T; C if none has either; 0 without all of them.
  int64_t tokens() const;

 private:
  std::array<std::optional<int64_t>, 5> told_;  // by CallDim; the entry of kNone means nothing
};

// A call of a plan while its tensors are gathered: first all that the caller gives, then what the
// call makes, then run(). Tensors have to outlive it.
class Call {
 public:
  // Makes a call that goes to the current stream of the device of its tensors.
  Call(const ReadyPlan& ready, const CallRow& row, DLDevice device);

  // Reads the sizes of the call from a tensor that the caller gives.
  void read_sizes(const CallArgument& argument, const Tensor& tensor);
  // Adds a tensor of the caller, when all sizes are read. A tensor without elements stands for an
  // absent one: where the call may leave it out, and where a tensor has other dimensions than one.
  // A tensor that the call only reads, and that kernels
  // cannot read where it is, as x[1:], is copied first.
  void add(const CallArgument& argument, const Tensor& tensor);
  // Returns a tensor that the call is to write; it begins as zeros where the call reads it.
  Tensor make(const CallArgument& argument) const;
  // Allocates the workspace and makes the call.
  void run(const char* name);

 private:
  // Sets all bytes of what the call makes to fill_of(), if that is a value.
  void fill_new(const Tensor& tensor) const;
  void add_tensor(const CallArgument& argument, const Tensor& tensor);
  void add_shape(const PlannedTensor& planned);
  void add_quantized(const CallArgument& argument, const Tensor& block);
  void add_to_record(const char* name, const DLTensor* tensor);
  // Returns the bytes of a block of the call.
  int64_t bytes_of(const CallArgument& argument) const;
  // Returns the shape of a tensor. Sizes that no given tensor has are the most that may be needed.
  std::array<int64_t, 4> shape_of(const PlannedTensor& planned) const;
  moejit_plan_sizes block_sizes() const { return ready_.sizes(sizes_.tokens()); }

  static constexpr std::size_t kMostTensors = 64;
  static constexpr std::size_t kMostSlices = 32;

  const ReadyPlan& ready_;
  const CallRow& row_;
  DLDevice device_;
  CallSizes sizes_;
  moejit_call call_{};
  std::array<moejit_tensor, kMostTensors> tensors_;
  std::array<DLTensor, kMostSlices> slices_;
  std::size_t slice_count_ = 0;
  std::vector<Tensor> copies_;
  DLTensor shape_only_{};
  std::array<int64_t, 4> shape_{};
};

}  // namespace moejit::torch
