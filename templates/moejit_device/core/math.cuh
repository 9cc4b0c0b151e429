// SPDX-License-Identifier: Apache-2.0
#pragma once

// Functions of activations.

#include "moejit_device/ptx/convert.cuh"

namespace moejit::device {

// 1 / (1 + e^-x), relative error a few 2^-23 wherever the result is a normal number.
//
// With E = e^-|x| <= 1 it is 1 / (1 + E) for x >= 0 and E / (1 + E) below: nothing overflows. In
// E = 2^(-|x| log2 e) the product must not be rounded to 24 bits, as its absolute error becomes a
// relative one: 2^high is corrected by the first-order term of what was rounded off. |x| is cut
// where E is zero anyway, so that an infinite x has no Inf - Inf. A NaN gives 0, and products of
// the result with that same NaN are NaN.
MOEJIT_DEVICE float sigmoid(float x) {
  constexpr float kLog2E = 0x1.715476p+0f;
  constexpr float kLog2ERest = 0x1.4ae0c0p-26f;  // log2(e) - kLog2E
  constexpr float kLn2 = 0x1.62e430p-1f;
  constexpr float kZeroBeyond = 112.0f;  // e^-112 < 2^-150
  const float exponent = ptx::max_number(-ptx::absolute(x), -kZeroBeyond);
  const float high = ptx::multiply(exponent, kLog2E);
  const float rounded_off = ptx::fused_multiply_add(exponent, kLog2E, -high);
  const float low = ptx::fused_multiply_add(exponent, kLog2ERest, rounded_off);
  const float power = ptx::exp2_approximate(high);
  const float decay = ptx::fused_multiply_add(power, ptx::multiply(low, kLn2), power);
  const float reciprocal = ptx::reciprocal_approximate(ptx::add(1.0f, decay));
  return x >= 0.0f ? reciprocal : ptx::multiply(decay, reciprocal);
}

}  // namespace moejit::device
