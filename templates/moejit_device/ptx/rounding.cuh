// SPDX-License-Identifier: Apache-2.0
#pragma once

// Functions of a part of the numbers, in few instructions and without branches.

#include "moejit_device/ptx/convert.cuh"

namespace moejit::device::ptx {

// Returns 1 / value, rounded to nearest even, of values from 1 to 2^126 and of NaN. These are the
// steps that reciprocal() takes where it does not branch off for other numbers.
MOEJIT_DEVICE float reciprocal_from_one_on(float value) {
  const float near = reciprocal_approximate(value);
  const float error = fused_multiply_add(value, near, -1.0f);
  return fused_multiply_add(near, -error, near);
}

// Returns `value`, or 0 if x is below a bound. The compiler would branch around what makes the
// value.
MOEJIT_DEVICE float zero_if_below(float x, float bound, float value) {
  float result;
  asm("{ .reg .pred is_below; setp.lt.f32 is_below, %1, %2; selp.f32 %0, 0f00000000, %3, is_below; "
      "}"
      : "=f"(result)
      : "f"(x), "f"(bound), "f"(value));
  return result;
}

// Returns the integer that is nearest to a value from 0 to 2^63, ties to even.
MOEJIT_DEVICE uint64_t nearest_u64(float value) { return __float2ull_rn(value); }

}  // namespace moejit::device::ptx
