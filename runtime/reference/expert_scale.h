// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/number_formats.h"

#include <cstdint>
#include <span>
#include <vector>

// Scales that all rows of an expert, or its matrix, share, as current scaling has them.
namespace moejit::reference {

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

}  // namespace moejit::reference
