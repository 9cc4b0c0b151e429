// SPDX-License-Identifier: Apache-2.0
#pragma once

// Number conversions and arithmetic whose rounding is stated. Round to nearest even everywhere.

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
  asm("max.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}

// Converts two floats to a word of bf16, `low` in the low half.
MOEJIT_DEVICE uint32_t bf16_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// Converts two floats to two e4m3 bytes, `low` in the low byte; saturating, NaN to 0x7f.
MOEJIT_DEVICE uint16_t e4m3_pair(float low, float high) {
  uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}

// Converts two floats to two e5m2 bytes in the same way.
MOEJIT_DEVICE uint16_t e5m2_pair(float low, float high) {
  uint16_t pair;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}

}  // namespace moejit::device::ptx
