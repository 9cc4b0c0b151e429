// SPDX-License-Identifier: Apache-2.0
#pragma once

// Scales of the format E8M0: a byte E stands for 2^(E-127). A group of 32 elements has one; its
// elements are e4m3, and q * 2^(E-127) is the value.
//
// The rule, for amax >= 0 (never NaN: maxima ignore NaN): E is the smallest byte with
// amax <= 448 * 2^(E-127), which is max(((bits(amax) + 0x1fffff) >> 23) - 8, 0) as for the scales
// of core/numeric.cuh. An amax of 0 gives 0, and of infinity 254. E is never 255, which means NaN.

#include "moejit_device/core/numeric.cuh"
#include "moejit_device/ptx/f16.cuh"

namespace moejit::device {

inline constexpr int32_t kE8m0Group = 32;  // elements that share a scale

MOEJIT_DEVICE uint32_t e8m0_from_amax(float amax) {
  constexpr int32_t kLog2OfMax = 8;  // 448 = 1.75 * 2^8
  constexpr uint32_t kInfinity = 0x7f800000u;
  const uint32_t bits = ptx::bits_of(amax);
  const int32_t exponent =
      larger(static_cast<int32_t>((bits + 0x1fffffu) >> 23) - kLog2OfMax, int32_t{0});
  return bits == kInfinity ? 254u : static_cast<uint32_t>(exponent);
}

// Returns 2^(exponent - 127) for an exponent from 0 to 254; 2^-127 is a subnormal.
MOEJIT_DEVICE float power_of_e8m0(uint32_t exponent) {
  return ptx::float_from_bits(exponent == 0 ? 0x00400000u : exponent << 23);
}

// Returns the factors of a group with this scale.
MOEJIT_DEVICE BlockScale scale_of_e8m0(uint32_t exponent) {
  return {.scale = power_of_e8m0(254u - exponent), .scale_inv = power_of_e8m0(exponent)};
}

// Returns the exponents of two amax, the bf16 halves of a word whose signs do not count, in the two
// lowest bytes.
MOEJIT_DEVICE uint32_t e8m0_pair(uint32_t amax) {
  return e8m0_from_amax(ptx::absolute(ptx::float_from_bf16_low(amax))) |
         (e8m0_from_amax(ptx::absolute(ptx::float_from_bf16_high(amax))) << 8);
}

// Returns the values of four e4m3 bytes, each times its factor, rounded once to bf16. A product is
// exact in bf16 for all factors but the largest and the smallest few.
MOEJIT_DEVICE Bytes8 recover_quad(uint32_t codes, const float (&factor)[4]) {
  const ptx::F16Quad q = ptx::f16_from_e4m3(codes);
  return {{ptx::bf16_pair(ptx::multiply(ptx::float_from_f16_low(q.low), factor[0]),
                          ptx::multiply(ptx::float_from_f16_high(q.low), factor[1])),
           ptx::bf16_pair(ptx::multiply(ptx::float_from_f16_low(q.high), factor[2]),
                          ptx::multiply(ptx::float_from_f16_high(q.high), factor[3]))}};
}
MOEJIT_DEVICE Bytes8 recover_quad(uint32_t codes, float factor) {
  return recover_quad(codes, {factor, factor, factor, factor});
}

}  // namespace moejit::device
