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

// The gradients of swiglu()'s gate and up, before they are multiplied with the row's probability.
struct SwigluGradients {
  float gate;
  float up;
};

// From `gradient`, that of swiglu()'s result; each operation rounded to fp32, with s the sigmoid of
// the gate and d = gradient * s:
//   for up  u = d * gate        for gate  fma(u, 1 - s, d) * up
MOEJIT_DEVICE SwigluGradients swiglu_backward(float gate, float up, float gradient) {
  const float s = sigmoid(gate);
  const float d = ptx::multiply(gradient, s);
  const float u = ptx::multiply(d, gate);
  return {.gate = ptx::multiply(ptx::fused_multiply_add(u, ptx::add(1.0f, -s), d), up), .up = u};
}

}  // namespace moejit::device
