// SPDX-License-Identifier: Apache-2.0
#pragma once

// Functions of activations.

#include "moejit_device/ptx/convert.cuh"

namespace moejit::device {

// 1 / (1 + e^-x), relative error at most (1 + |x| / 12) * 2^-20 where the result is a normal
// number: the special function unit's errors, and the product with log2(e), whose rounding and
// whose constant are off by |x| * 1.25 * 2^-24 in the exponent's terms. That is 2^-17 at |x| = 84,
// a factor of 2^13 below half a step of e4m3.
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

// ((gate * sigmoid(gate)) * up) * prob, each operation rounded to fp32.
MOEJIT_DEVICE float swiglu(float gate, float up, float prob) {
  const float silu = ptx::multiply(gate, sigmoid(gate));
  return ptx::multiply(ptx::multiply(silu, up), prob);
}

// What a gradient of swiglu() gives its gate and up, before these are multiplied with the row's
// probability, and up's share of the probability's own.
struct SwigluGradients {
  float gate;  // (gradient * dsilu) * up, where dsilu = silu * (1 - sigmoid) + sigmoid
  float up;    // gradient * silu
};

// Each operation rounded to fp32, that of dsilu fused.
MOEJIT_DEVICE SwigluGradients swiglu_backward(float gate, float up, float gradient) {
  const float sigma = sigmoid(gate);
  const float silu = ptx::multiply(gate, sigma);
  const float dsilu = ptx::fused_multiply_add(silu, ptx::add(1.0f, -sigma), sigma);
  return {.gate = ptx::multiply(ptx::multiply(gradient, dsilu), up),
          .up = ptx::multiply(gradient, silu)};
}

}  // namespace moejit::device
