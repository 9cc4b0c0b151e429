// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the conversions of moejit_sm80 take from a GPU, on the CPU.

#include <bit>
#include <cmath>
#include <cstdint>

#define MOEJIT_DEVICE inline

namespace moejit::device::ptx {

inline uint32_t __float_as_uint(float value) { return std::bit_cast<uint32_t>(value); }
inline float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float value) { return 1.0f / value; }

}  // namespace moejit::device::ptx
