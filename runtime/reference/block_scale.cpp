// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/block_scale.h"

#include <cmath>

namespace moejit::reference {

BlockScale scale_from_amax(float amax, const ScaleRule& rule) {
  if (amax < rule.eps) amax = rule.eps;
  if (amax == 0.0F || !std::isfinite(amax)) return {1.0F, 1.0F};
  float scale = rule.fp8_max / amax;
  if (std::isinf(scale)) scale = rule.largest_scale;
  if (rule.is_power_of_two) scale = float_of_bits(bits_of(scale) & 0xFF800000U);
  return {scale, static_cast<float>(1.0 / static_cast<double>(scale))};
}

float power_of_two_scale_inv(float amax, float fp8_max) {
  int amax_exponent = 0;
  int max_exponent = 0;
  const float amax_mantissa = std::frexp(amax, &amax_exponent);
  const float max_mantissa = std::frexp(fp8_max, &max_exponent);
  const int exponent = amax_exponent - max_exponent + (amax_mantissa > max_mantissa ? 1 : 0);
  return std::ldexp(1.0F, exponent);
}

}  // namespace moejit::reference
