// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

namespace moejit::testing {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Bits of bf16 values.
inline constexpr uint16_t kBf16Infinity = 0x7f80, kBf16Nan = 0x7fc0;

}  // namespace moejit::testing
