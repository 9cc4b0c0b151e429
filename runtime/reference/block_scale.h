// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/number_formats.h"

namespace moejit::reference {

// The factors of a block: values are multiplied by `scale` to quantize and by `scale_inv` to
// recover.
struct BlockScale {
  float scale = 1.0F;
  float scale_inv = 1.0F;
};

struct ScaleRule {
  float fp8_max = kE4m3Max;
  float eps = 0.0F;                // a smaller amax counts as this
  bool is_power_of_two = true;     // whether the scale's mantissa is dropped
  float largest_scale = kBf16Max;  // replaces an infinite scale: the input type's largest value
};

// Returns the scale of a block whose largest magnitude is `amax` (fp32, >= 0, NaN elements left
// out). An amax of 0 (with eps 0) or Inf gives scale 1.
BlockScale scale_from_amax(float amax, const ScaleRule& rule);

// Returns 2^ceil(log2(amax / fp8_max)), exactly, for a finite amax > 0. It is the smallest power of
// two s with amax / s <= fp8_max. Does not clamp: the caller keeps amax >= 2^-118, where the result
// is normal.
float power_of_two_scale_inv(float amax, float fp8_max);

}  // namespace moejit::reference
