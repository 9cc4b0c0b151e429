// SPDX-License-Identifier: Apache-2.0
#pragma once

// Functions of activations. An activation itself is part of a kernel's own text, a type with
//   static float value(float gate, float up)
// or, in a backward kernel,
//   static ActivationGradients gradients(float gate, float up, float gradient, float dprob)
// where `gradient` belongs to the activation's result, before the probability; and
//   static constexpr bool kIsZeroAtZero
// tells whether these are +0 where their arguments are.

#include "moejit_device/ptx/convert.cuh"
#include "moejit_device/ptx/functions.cuh"

namespace moejit::device {

// 1 / (1 + e^-x), relative error at most (1 + |x| / 12) * 2^-20 where the result is a normal
// number, 0 below: the special function unit's errors, and the product with log2(e), whose rounding
// and whose constant are off by |x| * 1.25 * 2^-24 in the exponent's terms. That is 2^-17 at
// |x| = 84, a factor of 2^13 below half a step of e4m3.
//
// Where e^-x overflows, its reciprocal is the 0 that is wanted. NaN gives NaN.
MOEJIT_DEVICE float sigmoid(float x) {
  constexpr float kLog2E = 0x1.715476p0f;
  const float power = ptx::exp2_approximate(ptx::multiply(x, -kLog2E));
  return ptx::reciprocal_approximate(ptx::add(1.0f, power));
}

// 1 - erf(x) without the loss where erf is near 1: t * e^(P(t) - x^2) with t = 1 / (1 + |x| / 2)
// and a polynomial P of degree 9 (Numerical Recipes, section 6.2, relative error 1.2 * 2^-23),
// which needs few registers. Relative error at most (2 + x^2 / 4) * 2^-20 where the result is a
// normal number, 0 below: the exponent, of magnitude x^2 + 1.3, is rounded three times. NaN gives
// NaN.
MOEJIT_DEVICE float complementary_error_function(float x) {
  constexpr float kLog2E = 0x1.715476p0f;
  constexpr float kCoefficients[] = {-0.82215223f, 1.48851587f,  -1.13520398f,
                                     0.27886807f,  -0.18628806f, 0.09678418f,
                                     0.37409196f,  1.00002368f,  -1.26551223f};
  const float z = ptx::absolute(x);
  const float t = ptx::reciprocal_approximate(ptx::fused_multiply_add(0.5f, z, 1.0f));
  float exponent = 0.17087277f;
#pragma unroll
  for (const float coefficient : kCoefficients)
    exponent = ptx::fused_multiply_add(exponent, t, coefficient);
  exponent = ptx::fused_multiply_add(-z, z, exponent);
  const float right = ptx::multiply(t, ptx::exp2_approximate(ptx::multiply(exponent, kLog2E)));
  return x >= 0.0f ? right : ptx::add(2.0f, -right);
}

// The result of an activation's gradients(): the gradients of gate and up, before they are
// multiplied with the row's probability, and the sum of the probability's gradient so far.
struct ActivationGradients {
  float gate;
  float up;
  float dprob;
};

}  // namespace moejit::device
