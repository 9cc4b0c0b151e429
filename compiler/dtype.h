// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace moejit::compiler {

// Element types of tensors. Files and listings use the names of safetensors.
enum class DType {
  kBF16,
  kF16,
  kF32,
  kF8E4M3,
  kF8E5M2,
  kI32,
  kI64,
  kU8,
  kU32,
  kF8E8M0,
  kF4E2M1x2,  // a byte of two numbers, the first one in its low half
};

std::string_view to_string(DType dtype);  // "BF16", "F8_E4M3", ...
std::optional<DType> dtype_from_string(std::string_view name);
int64_t size_bytes(DType dtype);  // of one element

}  // namespace moejit::compiler
