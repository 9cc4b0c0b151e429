// SPDX-License-Identifier: Apache-2.0
#pragma once

// Number conversions and arithmetic whose rounding is stated, where the GPU converts no FP8. Round
// to nearest even everywhere.

#include "moejit_device/ptx/thread.cuh"

namespace moejit::device::ptx {

MOEJIT_DEVICE float float_from_bits(uint32_t bits) { return __uint_as_float(bits); }
MOEJIT_DEVICE uint32_t bits_of(float value) { return __float_as_uint(value); }

MOEJIT_DEVICE float multiply(float a, float b) { return __fmul_rn(a, b); }
MOEJIT_DEVICE float add(float a, float b) { return __fadd_rn(a, b); }
MOEJIT_DEVICE float fused_multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
MOEJIT_DEVICE float divide(float a, float b) { return __fdiv_rn(a, b); }
MOEJIT_DEVICE float reciprocal(float value) { return __frcp_rn(value); }

// Return the larger of two, or the other one if one is NaN.
MOEJIT_DEVICE float max_number(float a, float b) { return fmaxf(a, b); }
MOEJIT_DEVICE float absolute(float value) { return fabsf(value); }

// 2^x and 1/x by the special function unit, relative error at most 2^-22 and 2^-23, for arguments
// and results that are normal numbers; a subnormal counts as zero.
MOEJIT_DEVICE float exp2_approximate(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
MOEJIT_DEVICE float reciprocal_approximate(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// Return the two bf16 values of a word, low half first.
MOEJIT_DEVICE float float_from_bf16_low(uint32_t pair) { return float_from_bits(pair << 16); }
MOEJIT_DEVICE float float_from_bf16_high(uint32_t pair) {
  return float_from_bits(pair & 0xffff0000u);
}

// Returns, for each bf16 half of two words, the one with the larger magnitude, or the other one if
// one is NaN; its sign is not defined.
MOEJIT_DEVICE uint32_t larger_bf16_magnitudes(uint32_t a, uint32_t b) {
  uint32_t result;
  asm("max.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a & 0x7fff7fffu), "r"(b & 0x7fff7fffu));
  return result;
}

// Converts two floats to a word of bf16, `low` in the low half.
MOEJIT_DEVICE uint32_t bf16_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// Returns the code of a float in a format of FP8 with kMantissa bits behind the point, the least
// normal number 2^kLeast, and the code kMost of the largest number; saturating, NaN to 0x7f. It
// rounds in the integers of its bits, and subnormal numbers by an addition.
template <int32_t kMantissa, int32_t kLeast, uint32_t kMost>
MOEJIT_DEVICE uint32_t fp8_code(float value) {
  constexpr int32_t kDropped = 23 - kMantissa;  // bits of a float's mantissa
  constexpr uint32_t kBias = static_cast<uint32_t>(126 + kLeast) << kMantissa;
  // The last place of this power of two is the smallest subnormal number of the format.
  constexpr uint32_t kLastPlace = static_cast<uint32_t>(127 + kLeast + kDropped) << 23;
  const uint32_t bits = bits_of(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t half = (1u << (kDropped - 1)) - 1 + ((magnitude >> kDropped) & 1u);
  const uint32_t normal = ((magnitude + half) >> kDropped) - kBias;
  const uint32_t small =
      bits_of(add(float_from_bits(magnitude), float_from_bits(kLastPlace))) - kLastPlace;
  const bool is_small = magnitude < static_cast<uint32_t>(127 + kLeast) << 23;
  uint32_t code = is_small ? small : normal;
  if (magnitude >= 0x7f800000u || code > kMost) code = kMost;
  if (magnitude > 0x7f800000u) return 0x7fu;
  return code | ((bits >> 24) & 0x80u);
}

// Converts two floats to two e4m3 bytes, `low` in the low byte; saturating, NaN to 0x7f.
MOEJIT_DEVICE uint16_t e4m3_pair(float low, float high) {
  return static_cast<uint16_t>(fp8_code<3, -6, 0x7e>(low) | (fp8_code<3, -6, 0x7e>(high) << 8));
}

// Converts two floats to two e5m2 bytes in the same way.
MOEJIT_DEVICE uint16_t e5m2_pair(float low, float high) {
  return static_cast<uint16_t>(fp8_code<2, -14, 0x7b>(low) | (fp8_code<2, -14, 0x7b>(high) << 8));
}

}  // namespace moejit::device::ptx
