// SPDX-License-Identifier: Apache-2.0
#pragma once

// The functions that routers make scores of, with the same bits on every target: docs/router.md
// states each rounding.

#include "moejit_device/ptx/convert.cuh"
#include "moejit_device/ptx/functions.cuh"
#include "moejit_device/ptx/rounding.cuh"

namespace moejit::device {

// e^x for x <= 0, and NaN for NaN; 0 below -87.
MOEJIT_DEVICE float score_exponential(float x) {
  constexpr float kLog2E = 0x1.715476p0f, kToInteger = 0x1.8p23f;
  constexpr float kCoefficients[] = {0x1.123a6ap-7f, 0x1.5558f4p-5f, 0x1.55549p-3f,
                                     0x1.fffffcp-2f, 1.0f,           1.0f};
  // The integer is in the low bits of this sum.
  const float shifted = ptx::fused_multiply_add(x, kLog2E, kToInteger);
  const float n = ptx::add(shifted, -kToInteger);
  float r = ptx::fused_multiply_add(n, -0x1.62e4p-1f, x);
  r = ptx::fused_multiply_add(n, -0x1.7f7d1cp-20f, r);
  float value = 0x1.6a2356p-10f;
#pragma unroll
  for (const float coefficient : kCoefficients)
    value = ptx::fused_multiply_add(value, r, coefficient);
  const float power = ptx::float_from_bits((ptx::bits_of(shifted) << 23) + ptx::bits_of(1.0f));
  return ptx::zero_if_below(x, -87.0f, ptx::multiply(value, power));
}

// log((1 + q) / (1 - q)) for |q| <= 1/3.
MOEJIT_DEVICE float score_ratio_log(float q) {
  constexpr float kCoefficients[] = {0x1.1eb61cp-2f, 0x1.99d27ap-2f, 0x1.5555p-1f};
  const float u = ptx::multiply(q, q);
  float value = 0x1.1ef83ep-2f;
#pragma unroll
  for (const float coefficient : kCoefficients)
    value = ptx::fused_multiply_add(value, u, coefficient);
  return ptx::fused_multiply_add(ptx::multiply(q, u), value, ptx::add(q, q));
}

// log(x) of x from 1 to 2^16.
MOEJIT_DEVICE float score_logarithm(float x) {
  constexpr uint32_t kThreeQuarters = 0x3f400000u;
  const uint32_t k = (ptx::bits_of(x) - kThreeQuarters) >> 23;
  const float f = ptx::float_from_bits(ptx::bits_of(x) - (k << 23));  // from 0.75 to 1.5
  const float of_f = score_ratio_log(ptx::divide(ptx::add(f, -1.0f), ptx::add(f, 1.0f)));
  return ptx::fused_multiply_add(static_cast<float>(static_cast<int32_t>(k)), 0x1.62e43p-1f, of_f);
}

MOEJIT_DEVICE float score_tanh(float x) {
  constexpr float kCoefficients[] = {0x1.5256dcp-6f, -0x1.b8444ap-5f, 0x1.110768p-3f,
                                     -0x1.555534p-2f};
  const float magnitude = ptx::absolute(x);
  if (magnitude <= 0.625f) {
    const float v = ptx::multiply(x, x);
    float value = -0x1.76ac3p-8f;
#pragma unroll
    for (const float coefficient : kCoefficients)
      value = ptx::fused_multiply_add(value, v, coefficient);
    return ptx::fused_multiply_add(ptx::multiply(x, v), value, x);
  }
  const float t = score_exponential(ptx::multiply(-2.0f, magnitude));
  const float result = ptx::divide(ptx::add(1.0f, -t), ptx::add(1.0f, t));
  return x < 0.0f ? -result : result;
}

MOEJIT_DEVICE float score_sigmoid(float z) {
  const float t = score_exponential(-ptx::absolute(z));
  const float inverse = ptx::reciprocal_from_one_on(ptx::add(1.0f, t));
  return ptx::multiply(z < 0.0f ? t : 1.0f, inverse);
}

MOEJIT_DEVICE float score_sqrt_softplus(float z) {
  const float t = score_exponential(-ptx::absolute(z));
  const float q = ptx::multiply(t, ptx::reciprocal_from_one_on(ptx::add(2.0f, t)));
  return ptx::square_root(ptx::add(z > 0.0f ? z : 0.0f, score_ratio_log(q)));
}

}  // namespace moejit::device
