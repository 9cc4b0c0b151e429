// SPDX-License-Identifier: Apache-2.0
#pragma once

// Codes of E2M1 with scales on two levels, NVFP4. Each block of elements has a scale in E4M3. It is
// relative to a scale in fp32 that all of an expert's rows, or its matrix, have in common.
//
// The rule, for the largest magnitude `amax` of a block (never NaN: maxima ignore NaN), with fl()
// rounding to fp32, and the expert's scale S that values are multiplied by:
//   byte = e4m3(fl(amax * fl(S * fl(1/6))))       saturating: infinity becomes 448
//   k    = fl(1 / fl(value of byte * fl(1/S)))    infinity becomes the largest finite number
//   q    = e2m1(fl(x * k))                        to nearest even, saturating; NaN becomes 6
// The value of q times the value of byte has 6 significant bits, so it is a number of bf16.

#include "moejit_device/core/integer.cuh"
#include "moejit_device/ptx/convert.cuh"
#include "moejit_device/ptx/f16.cuh"

namespace moejit::device {

// Returns the code of a value. The codes are 0, 0.5, 1, 1.5, 2, 3, 4 and 6, with the sign in bit 3.
MOEJIT_DEVICE uint32_t e2m1_code(float value) {
  constexpr uint32_t kTwo = 0x40000000u, kSix = 0x40c00000u, kInfinity = 0x7f800000u;
  const uint32_t bits = ptx::bits_of(value) & 0x7fffffffu;
  const uint32_t magnitude = smaller(bits, kSix);
  // Codes below 2 are 0.5 apart, as are floats from 2^22 on.
  const uint32_t small = ptx::bits_of(ptx::add(ptx::float_from_bits(magnitude), 0x1p22f)) & 7u;
  // The others have one bit behind the first one. Exponents of floats count from 127, not from 1.
  const uint32_t large = ((magnitude + 0x1fffffu + ((magnitude >> 22) & 1u)) >> 22) - 252u;
  const uint32_t sign = bits > kInfinity ? 0u : (ptx::bits_of(value) >> 28) & 8u;
  return sign | (magnitude < kTwo ? small : large);
}

// Returns the value of a code. As bits of a float it is 2^-126 times the value.
MOEJIT_DEVICE float e2m1_value(uint32_t code) {
  return ptx::multiply(ptx::float_from_bits(((code & 8u) << 28) | ((code & 7u) << 22)), 0x1p126f);
}

// The scale of a block.
struct TwoLevelScale {
  uint32_t byte;  // as it is stored, E4M3
  float scale;    // that values are multiplied by before they are cast
};

// Returns the value of a byte of E4M3.
MOEJIT_DEVICE float e4m3_value(uint32_t byte) {
  return ptx::float_from_f16_low(ptx::f16_from_e4m3(byte).low);
}

MOEJIT_DEVICE TwoLevelScale two_level_scale(float amax, float expert_scale) {
  constexpr uint32_t kSixth = 0x3e2aaaabu;  // 1/6, rounded to nearest
  constexpr float kLargest = 0x1.fffffep127f;
  const float relative =
      ptx::multiply(amax, ptx::multiply(expert_scale, ptx::float_from_bits(kSixth)));
  const uint32_t byte = ptx::e4m3_pair(relative, 0.0f) & 0xffu;
  const float inverse =
      ptx::reciprocal(ptx::multiply(e4m3_value(byte), ptx::reciprocal(expert_scale)));
  return {.byte = byte, .scale = inverse > kLargest ? kLargest : inverse};
}

}  // namespace moejit::device
