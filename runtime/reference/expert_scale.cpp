// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/expert_scale.h"

#include <cmath>
#include <limits>

namespace moejit::reference {

float amax_of_bf16(std::span<const std::uint16_t> values) {
  float amax = 0.0F;
  for (const std::uint16_t bits : values) {
    const float magnitude = std::fabs(float_from_bf16(bits));
    if (magnitude > amax) amax = magnitude;
  }
  return amax;
}

ExpertScale expert_scale(float amax, Fp8Format format, bool is_power_of_two) {
  if (!(amax > 0.0F) || std::isinf(amax)) return {};
  const float largest = format == Fp8Format::kE5m2 ? kE5m2Max : kE4m3Max;
  float scale = largest / amax;
  if (std::isinf(scale)) scale = std::numeric_limits<float>::max();
  if (is_power_of_two) scale = std::ldexp(1.0F, std::ilogb(scale));
  return {.scale = scale, .scale_inv = 1.0F / scale};
}

std::vector<std::uint8_t> cast_bf16(std::span<const std::uint16_t> values, float scale,
                                    Fp8Format format) {
  std::vector<std::uint8_t> codes;
  codes.reserve(values.size());
  for (const std::uint16_t bits : values) {
    const float product = float_from_bf16(bits) * scale;
    codes.push_back(encode_fp8(product, format));
  }
  return codes;
}

}  // namespace moejit::reference
