// SPDX-License-Identifier: Apache-2.0
#pragma once

// Functions of activations.

#include "moejit_device/ptx/convert.cuh"

namespace moejit::device {

// 1 / (1 + e^-x), relative error at most 2^-19 wherever the result is a normal number, and 2^-21
// for |x| <= 1: the product with log2(e) is rounded to 24 bits, and its absolute error becomes a
// relative one of the power. That is a factor of 2^15 below half a step of e4m3.
//
// With E = e^-|x| <= 1 it is 1 / (1 + E) for x >= 0 and E / (1 + E) below: nothing overflows, not
// for infinities either. NaN gives NaN. E is the square of its root, which is never subnormal where
// E is not zero, so that the special function unit's own flush to zero does not matter.
MOEJIT_DEVICE float sigmoid(float x) {
  constexpr float kHalfLog2E = 0x1.715476p-1f;
  const float root = ptx::exp2_approximate(ptx::multiply(-ptx::absolute(x), kHalfLog2E));
  const float power = ptx::multiply(root, root);
  const float reciprocal = ptx::reciprocal_approximate(ptx::add(1.0f, power));
  return ptx::multiply(x >= 0.0f ? 1.0f : power, reciprocal);
}

}  // namespace moejit::device
