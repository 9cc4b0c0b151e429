// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/torch/torch_functions.h"

#include <cstdint>
#include <dlpack/dlpack.h>
#include <span>

namespace moejit::torch {

// Owns a reference to a tensor of torch. The DLTensor points into that tensor: shape, strides and
// memory stay where they are as long as the reference lives.
class Tensor {
 public:
  Tensor() = default;
  // Takes over the reference that torch hands an operator in an argument.
  explicit Tensor(Value argument) noexcept : handle_(reinterpret_cast<TensorOpaque*>(argument)) {}
  // Allocates row-major memory, uninitialized, with torch's allocator.
  Tensor(std::span<const int64_t> shape, DLDataType dtype, DLDevice device);
  Tensor(Tensor&& other) noexcept;
  Tensor& operator=(Tensor&& other) noexcept;
  ~Tensor();

  // Reads the tensor's facts. Call it once before dl() of an argument; throws if the library does
  // not know the dtype or device. `name` is the tensor's name in that error.
  void describe(const char* name);

  const DLTensor& dl() const { return dl_; }
  DLDevice device() const { return dl_.device; }
  // Returns the size of a dimension, or -1 if the tensor has fewer dimensions.
  int64_t size(int32_t dim) const { return dim < dl_.ndim ? dl_.shape[dim] : -1; }
  int64_t element_count() const;
  int64_t byte_count() const { return element_count() * dl_.dtype.bits * dl_.dtype.lanes / 8; }

  // Returns whether kernels cannot read the tensor where it is, but could read a copy().
  bool needs_copy() const;
  // Returns a row-major copy in memory of its own, made in order with the current stream.
  Tensor copy() const;

  // Sets every byte to 0, in order with the current stream.
  void zero();
  // Hands the reference over to torch, as a result.
  Value release() noexcept;

 private:
  void allocate(std::span<const int64_t> shape, int32_t torch_dtype);

  TensorOpaque* handle_ = nullptr;
  DLTensor dl_{};
};

// Throws a sentence about a tensor that is on another device than the operator's first one.
void check_device(const char* name, const Tensor& tensor, const Tensor& first);

}  // namespace moejit::torch
