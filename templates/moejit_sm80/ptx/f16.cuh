// SPDX-License-Identifier: Apache-2.0
#pragma once

// Half precision between FP8 bytes, where the GPU converts no FP8. Round to nearest even
// everywhere.

#include "moejit_device/ptx/convert.cuh"
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

// Returns two e4m3 codes as f16, exact; a NaN loses its sign. Each code is the upper byte of a half
// of the word.
MOEJIT_DEVICE uint32_t f16_from_upper_e4m3(uint32_t codes) {
  constexpr uint32_t kTwoTo8 = 0x5c005c00u;  // the exponents' biases differ by 8
  uint32_t pair = ((codes & 0x7f007f00u) >> 1) | (codes & 0x80008000u);
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(pair), "r"(kTwoTo8));
  if ((codes & 0x00007f00u) == 0x00007f00u) pair = (pair & 0xffff0000u) | 0x00007fffu;
  if ((codes & 0x7f000000u) == 0x7f000000u) pair = (pair & 0x0000ffffu) | 0x7fff0000u;
  return pair;
}

// Return two neighboring bytes, each as the upper byte of a half of a word.
MOEJIT_DEVICE uint32_t spread_low(uint32_t bytes) {
  return ((bytes & 0xffu) << 8) | ((bytes & 0xff00u) << 16);
}
MOEJIT_DEVICE uint32_t spread_high(uint32_t bytes) { return spread_low(bytes >> 16); }

// Four e4m3 or e5m2 bytes, exact; a NaN stays one.
MOEJIT_DEVICE F16Quad f16_from_e4m3(uint32_t bytes) {
  return {f16_from_upper_e4m3(spread_low(bytes)), f16_from_upper_e4m3(spread_high(bytes))};
}
MOEJIT_DEVICE F16Quad f16_from_e5m2(uint32_t bytes) {
  return {spread_low(bytes), spread_high(bytes)};
}

// Converts f16 to e4m3; saturating, NaN to 0x7f.
MOEJIT_DEVICE uint32_t e4m3_from_f16(const F16Quad& quad) {
  return e4m3_pair(float_from_f16_low(quad.low), float_from_f16_high(quad.low)) |
         (uint32_t{e4m3_pair(float_from_f16_low(quad.high), float_from_f16_high(quad.high))} << 16);
}
MOEJIT_DEVICE uint32_t e5m2_from_f16(const F16Quad& quad) {
  return e5m2_pair(float_from_f16_low(quad.low), float_from_f16_high(quad.low)) |
         (uint32_t{e5m2_pair(float_from_f16_low(quad.high), float_from_f16_high(quad.high))} << 16);
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
