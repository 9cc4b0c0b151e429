// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace moejit::runtime {

// A row-major tensor in host memory.
struct HostTensor {
  compiler::DType dtype = compiler::DType::kU8;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

using TensorMap = std::map<std::string, HostTensor, std::less<>>;

// Returns the product of the dimensions; 1 for a scalar.
int64_t element_count(std::span<const int64_t> shape);

// Returns for example "[4, 128]".
std::string shape_text(std::span<const int64_t> shape);

// Returns for example "BF16 [4, 128]".
std::string type_text(compiler::DType dtype, std::span<const int64_t> shape);

// Returns the elements as T, which must have the size of the dtype.
template <typename T>
std::span<const T> elements(const HostTensor& tensor) {
  return {reinterpret_cast<const T*>(tensor.bytes.data()), tensor.bytes.size() / sizeof(T)};
}

template <typename T>
std::vector<T> copy_elements(const HostTensor& tensor) {
  const std::span<const T> view = elements<T>(tensor);
  return {view.begin(), view.end()};
}

// Returns a tensor with a copy of `values`.
template <typename T>
HostTensor make_tensor(compiler::DType dtype, std::vector<int64_t> shape,
                       const std::vector<T>& values) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
  return {dtype, std::move(shape), {bytes.begin(), bytes.end()}};
}

}  // namespace moejit::runtime
