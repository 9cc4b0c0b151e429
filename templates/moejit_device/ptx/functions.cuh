// SPDX-License-Identifier: Apache-2.0
#pragma once

// Functions for activations that users write. The relative error of exp, log, tanh and erf is at
// most 2 units in the last place, subnormal results included (CUDA C++ Programming Guide,
// mathematical functions); the square root is rounded to nearest even.

#include "moejit_device/ptx/thread.cuh"

namespace moejit::device::ptx {

// Return the smaller and the larger of two; NaN if one is NaN.
MOEJIT_DEVICE float min_or_nan(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
MOEJIT_DEVICE float max_or_nan(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

MOEJIT_DEVICE float square_root(float x) { return __fsqrt_rn(x); }
MOEJIT_DEVICE float exponential(float x) { return expf(x); }
MOEJIT_DEVICE float natural_logarithm(float x) { return logf(x); }
MOEJIT_DEVICE float hyperbolic_tangent(float x) { return tanhf(x); }
MOEJIT_DEVICE float error_function(float x) { return erff(x); }

}  // namespace moejit::device::ptx
