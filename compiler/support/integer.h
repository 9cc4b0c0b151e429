// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace moejit {

// Returns value / divisor, rounded up. Neither is negative.
constexpr int64_t ceil_div(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

// Returns the least multiple of `alignment` that is no less than the value.
constexpr int32_t align_up(int32_t value, int32_t alignment) {
  return static_cast<int32_t>(ceil_div(value, alignment)) * alignment;
}

}  // namespace moejit
