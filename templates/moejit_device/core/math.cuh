// SPDX-License-Identifier: Apache-2.0
#pragma once

// Functions of activations.

#include "moejit_device/ptx/convert.cuh"

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
MOEJIT_DEVICE SwigluGradients activation_backward(float gate, float up, float gradient) {
  const float s = sigmoid(gate);
  const float d = ptx::multiply(gradient, s);
  const float u = ptx::multiply(d, gate);
  return {.gate = ptx::multiply(ptx::fused_multiply_add(u, ptx::add(1.0f, -s), d), up), .up = u};
}

}  // namespace moejit::device
