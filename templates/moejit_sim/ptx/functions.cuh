// SPDX-License-Identifier: Apache-2.0
#pragma once

// Simulator's version of moejit_device/ptx/functions.cuh: correctly rounded but for results within
// 2^-52 of the middle between two floats.

#include "moejit_device/ptx/convert.cuh"

namespace moejit::device::ptx {

// -0 is smaller than +0.
MOEJIT_DEVICE float min_or_nan(float a, float b) {
  if (a != a || b != b) return float_from_bits(0x7fffffffu);
  if (a == b) return float_from_bits(bits_of(a) | bits_of(b));
  return a < b ? a : b;
}
MOEJIT_DEVICE float max_or_nan(float a, float b) {
  if (a != a || b != b) return float_from_bits(0x7fffffffu);
  return max_number(a, b);
}

MOEJIT_DEVICE float square_root(float x) { return canonical(__builtin_sqrtf(x)); }
MOEJIT_DEVICE float exponential(float x) {
  return canonical(static_cast<float>(__builtin_exp(static_cast<double>(x))));
}
MOEJIT_DEVICE float natural_logarithm(float x) {
  return canonical(static_cast<float>(__builtin_log(static_cast<double>(x))));
}
MOEJIT_DEVICE float hyperbolic_tangent(float x) {
  return canonical(static_cast<float>(__builtin_tanh(static_cast<double>(x))));
}
MOEJIT_DEVICE float error_function(float x) {
  return canonical(static_cast<float>(__builtin_erf(static_cast<double>(x))));
}

}  // namespace moejit::device::ptx
