// SPDX-License-Identifier: Apache-2.0
#pragma once

// Half precision between FP8 bytes. Round to nearest even everywhere.

#include "moejit_device/ptx/thread.cuh"

namespace moejit::device::ptx {

// Four values of half precision, two to a word, low half first.
struct F16Quad {
  uint32_t low, high;
};

// Converts two floats to a word of f16, `low` in the low half.
MOEJIT_DEVICE uint32_t f16_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// Return the two f16 values of a word, low half first; exact.
MOEJIT_DEVICE float float_from_f16_low(uint32_t pair) {
  float value;
  asm("{\n .reg .b16 low, high;\n mov.b32 {low, high}, %1;\n cvt.f32.f16 %0, low;\n}"
      : "=f"(value)
      : "r"(pair));
  return value;
}
MOEJIT_DEVICE float float_from_f16_high(uint32_t pair) { return float_from_f16_low(pair >> 16); }

// Four e4m3 or e5m2 bytes, exact; a NaN loses its sign.
MOEJIT_DEVICE F16Quad f16_from_e4m3(uint32_t bytes) {
  F16Quad quad;
  asm("{\n .reg .b16 low, high;\n mov.b32 {low, high}, %2;\n"
      " cvt.rn.f16x2.e4m3x2 %0, low;\n cvt.rn.f16x2.e4m3x2 %1, high;\n}"
      : "=r"(quad.low), "=r"(quad.high)
      : "r"(bytes));
  return quad;
}
MOEJIT_DEVICE F16Quad f16_from_e5m2(uint32_t bytes) {
  F16Quad quad;
  asm("{\n .reg .b16 low, high;\n mov.b32 {low, high}, %2;\n"
      " cvt.rn.f16x2.e5m2x2 %0, low;\n cvt.rn.f16x2.e5m2x2 %1, high;\n}"
      : "=r"(quad.low), "=r"(quad.high)
      : "r"(bytes));
  return quad;
}

// Converts f16 to e4m3; saturating, NaN to 0x7f.
MOEJIT_DEVICE uint32_t e4m3_from_f16(const F16Quad& quad) {
  uint32_t bytes;
  asm("{\n .reg .b16 low, high;\n cvt.rn.satfinite.e4m3x2.f16x2 low, %1;\n"
      " cvt.rn.satfinite.e4m3x2.f16x2 high, %2;\n mov.b32 %0, {low, high};\n}"
      : "=r"(bytes)
      : "r"(quad.low), "r"(quad.high));
  return bytes;
}
MOEJIT_DEVICE uint32_t e5m2_from_f16(const F16Quad& quad) {
  uint32_t bytes;
  asm("{\n .reg .b16 low, high;\n cvt.rn.satfinite.e5m2x2.f16x2 low, %1;\n"
      " cvt.rn.satfinite.e5m2x2.f16x2 high, %2;\n mov.b32 %0, {low, high};\n}"
      : "=r"(bytes)
      : "r"(quad.low), "r"(quad.high));
  return bytes;
}

// Multiplies all four with the low (kHalf 0) or high (kHalf 1) f16 of a word.
template <int32_t kHalf>
MOEJIT_DEVICE F16Quad multiply(const F16Quad& quad, uint32_t factors) {
  F16Quad product;
  if constexpr (kHalf == 0) {
    asm("{\n .reg .b16 low, high;\n .reg .b32 both;\n mov.b32 {low, high}, %4;\n"
        " mov.b32 both, {low, low};\n mul.rn.f16x2 %0, %2, both;\n mul.rn.f16x2 %1, %3, both;\n}"
        : "=r"(product.low), "=r"(product.high)
        : "r"(quad.low), "r"(quad.high), "r"(factors));
  } else {
    asm("{\n .reg .b16 low, high;\n .reg .b32 both;\n mov.b32 {low, high}, %4;\n"
        " mov.b32 both, {high, high};\n mul.rn.f16x2 %0, %2, both;\n"
        " mul.rn.f16x2 %1, %3, both;\n}"
        : "=r"(product.low), "=r"(product.high)
        : "r"(quad.low), "r"(quad.high), "r"(factors));
  }
  return product;
}

}  // namespace moejit::device::ptx
