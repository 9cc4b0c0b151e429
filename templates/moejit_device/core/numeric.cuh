// SPDX-License-Identifier: Apache-2.0
#pragma once

// From the largest magnitude of a scale block to its power-of-two scale, and the cast to e4m3.
// This is the only place on the device that knows the rule.
//
// The rule, for amax >= 0 (never NaN: maxima ignore NaN), with fl() rounding to fp32:
//   A = amax < epsilon ? epsilon : amax;     A = 0 or A = Inf: scale = 1
//   scale = fl(448 / A), largest bf16 where that overflows, mantissa bits cleared
//   scale_inv = 1 / scale;     q = cast(fl(x * scale))
//
// No division is needed. Let A = m * 2^e with 1 <= m < 2. As 448 = 1.75 * 2^8,
// 448 / A = (1.75 / m) * 2^(8-e), so
//   m <= 1.75:  1 <= 1.75/m <= 1.75, scale = 2^(8-e);
//   m >  1.75:  m >= 1.75 + 2^-23, so 1.75/m < 1 - 1.1 * 2^-24: it rounds below 1 (the spacing
//               there is 2^-24) and scale = 2^(7-e).
// Both say scale_inv = 2^ceil(log2(A / 448)). The quotient overflows exactly where that power would
// be below 2^-127, and the largest bf16 without its mantissa is 2^127: scale_inv is clamped to
// 2^-127. (A quotient that rounds up to 2^128 had scale 2^127 either way; a subnormal A lies far
// below the clamp.) With the bits of A, adding 0x1fffff carries into the exponent field exactly
// where the mantissa field exceeds 0x600000, the field of 1.75.

#include "moejit_device/core/integer.cuh"
#include "moejit_device/ptx/convert.cuh"

namespace moejit::device {

// Multiply by `scale` to quantize, by `scale_inv` to recover the value. Powers of two.
struct BlockScale {
  float scale;
  float scale_inv;
};

template <uint32_t kEpsilonBits>
MOEJIT_DEVICE BlockScale e4m3_scale_from_amax(float amax) {
  static_assert(kEpsilonBits < 0x7f800000u, "epsilon is a finite float that is not negative");
  constexpr int32_t kLog2OfMax = 8;  // 448 = 1.75 * 2^8
  constexpr uint32_t kInfinity = 0x7f800000u;
  // Floats that are not negative are ordered like their bits.
  const uint32_t bits = larger(ptx::bits_of(amax), kEpsilonBits);
  const int32_t exponent =
      larger(static_cast<int32_t>((bits + 0x1fffffu) >> 23) - kLog2OfMax, int32_t{0});
  // The exponent field of scale_inv; 0 stands for 2^-127, a subnormal.
  const uint32_t scale_bits = static_cast<uint32_t>(254 - exponent) << 23;
  const uint32_t inverse_bits = exponent == 0 ? 0x00400000u : static_cast<uint32_t>(exponent) << 23;
  const bool is_one = bits == 0u || bits == kInfinity;
  return {.scale = is_one ? 1.0f : ptx::float_from_bits(scale_bits),
          .scale_inv = is_one ? 1.0f : ptx::float_from_bits(inverse_bits)};
}

// Returns the factors of a block whose scale_inv is stored.
MOEJIT_DEVICE BlockScale scale_of_inverse(float scale_inv) {
  const uint32_t exponent = ptx::bits_of(scale_inv) >> 23;  // 0 stands for 2^-127
  return {.scale = ptx::float_from_bits((254u - exponent) << 23), .scale_inv = scale_inv};
}

// Cast two or four values times `scale` to one e4m3 byte each, the first in the lowest byte.
MOEJIT_DEVICE uint16_t quantize_pair(const float* value, float scale) {
  return ptx::e4m3_pair(ptx::multiply(value[0], scale), ptx::multiply(value[1], scale));
}
MOEJIT_DEVICE uint32_t quantize_quad(const float* value, float scale) {
  const uint32_t low = quantize_pair(value, scale);
  const uint32_t high = quantize_pair(value + 2, scale);
  return low | (high << 16);
}

// Returns the larger of `amax` and the magnitudes of kCount values; NaN counts as nothing.
template <int32_t kCount>
MOEJIT_DEVICE float max_magnitude(const float* value, float amax) {
#pragma unroll
  for (int32_t i = 0; i < kCount; ++i) amax = ptx::max_number(amax, ptx::absolute(value[i]));
  return amax;
}

}  // namespace moejit::device
