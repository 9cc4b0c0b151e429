// SPDX-License-Identifier: Apache-2.0
#include "runtime/host_tensor.h"

#include <fmt/core.h>

namespace moejit::runtime {

int64_t element_count(std::span<const int64_t> shape) {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  return count;
}

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (const int64_t dim : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(dim);
  }
  return text + "]";
}

std::string type_text(compiler::DType dtype, std::span<const int64_t> shape) {
  return fmt::format("{} {}", compiler::to_string(dtype), shape_text(shape));
}

}  // namespace moejit::runtime
