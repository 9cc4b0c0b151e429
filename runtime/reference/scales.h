// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/number_formats.h"

#include <cstdint>
#include <span>
#include <vector>

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

// Scales that all rows of an expert, or its matrix, share, as current scaling has them.

// Values are multiplied by `scale` before the cast, codes by `scale_inv` to recover them.
struct ExpertScale {
  float scale = 1.0F;
  float scale_inv = 1.0F;
};

// Returns the largest magnitude of bf16 values, NaN apart; 0 if there is none.
float amax_of_bf16(std::span<const std::uint16_t> values);

// Returns the scale for a largest magnitude; 1 for 0, infinity and NaN. It is the format's largest
// number divided by the magnitude and rounded to fp32, at most the largest finite number. With
// `is_power_of_two` it is rounded down to a power of two.
ExpertScale expert_scale(float amax, Fp8Format format, bool is_power_of_two = false);

// Returns the cast of bf16 values. Each product with `scale` is rounded to fp32, then to the
// format.
std::vector<std::uint8_t> cast_bf16(std::span<const std::uint16_t> values, float scale,
                                    Fp8Format format);

// Scales that follow from the largest magnitudes of the steps before, as Transformer Engine's
// delayed scaling has them.

// The state of some tensors, which are its columns.
struct ScaleState {
  std::int64_t columns = 0;
  std::vector<float> amax_history;  // [L, columns]; casts of this step raise row 0
  std::vector<float> scale;         // [columns]
};

struct DelayedRule {
  float largest = 448.0F;       // the format's largest number times 2^-margin
  bool is_most_recent = false;  // whether only this step counts
};

// Raises the largest magnitude of a column in this step; NaN counts as nothing.
void record_amax(ScaleState& state, std::int64_t column, float amax);

// Ends a step. Columns without a record stay as they are. The others lose their oldest magnitude
// and get a scale, unless the magnitude behind the scale is infinite.
void update_scales(ScaleState& state, const DelayedRule& rule);

}  // namespace moejit::reference
