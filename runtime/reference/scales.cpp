// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/scales.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

namespace {

void update_column(ScaleState& state, std::int64_t column, const DelayedRule& rule) {
  // The history as a list: the oldest step first, this step last.
  std::vector<float> steps;
  const auto rows = static_cast<std::int64_t>(state.amax_history.size()) / state.columns;
  const auto at = [&](std::int64_t row) -> float& {
    return state.amax_history[static_cast<std::size_t>(row * state.columns + column)];
  };
  if (at(0) == 0.0F) return;
  for (std::int64_t row = 1; row < rows; ++row) steps.push_back(at(row));
  steps.push_back(at(0));
  const float amax =
      rule.is_most_recent ? steps.back() : *std::max_element(steps.begin(), steps.end());
  if (rows > 1) {
    steps.erase(steps.begin());
    for (std::int64_t row = 1; row < rows; ++row)
      at(row) = steps[static_cast<std::size_t>(row - 1)];
  }
  at(0) = 0.0F;
  if (!std::isfinite(amax) || amax <= 0.0F) return;
  const float scale = rule.largest / amax;
  state.scale[static_cast<std::size_t>(column)] =
      std::isinf(scale) ? std::numeric_limits<float>::max() : scale;
}

}  // namespace

void record_amax(ScaleState& state, std::int64_t column, float amax) {
  float& recorded = state.amax_history[static_cast<std::size_t>(column)];
  if (amax > recorded) recorded = amax;
}

void update_scales(ScaleState& state, const DelayedRule& rule) {
  for (std::int64_t column = 0; column < state.columns; ++column)
    update_column(state, column, rule);
}

}  // namespace moejit::reference
