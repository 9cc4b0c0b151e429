// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/router_functions.h"

#include "runtime/reference/number_formats.h"

#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>

namespace moejit::reference {
namespace {

// Evaluates a polynomial, highest power first, with one rounding for each coefficient.
float polynomial(float x, std::initializer_list<float> coefficients) {
  float value = *coefficients.begin();
  for (const float* next = coefficients.begin() + 1; next != coefficients.end(); ++next)
    value = std::fma(value, x, *next);
  return value;
}

float tree(std::array<float, 32> sums) {
  for (std::size_t half = 16; half > 0; half /= 2)
    for (std::size_t l = 0; l < half; ++l) sums[l] += sums[l + half];
  return sums[0];
}

}  // namespace

float router_exp(float x) {
  if (std::isnan(x)) return x;
  if (x < -87.0F) return 0.0F;
  const float n = std::fma(x, 0x1.715476p0F, 0x1.8p23F) - 0x1.8p23F;
  const float r = std::fma(n, -0x1.7f7d1cp-20F, std::fma(n, -0x1.62e4p-1F, x));
  const float power = polynomial(r, {0x1.6a2356p-10F, 0x1.123a6ap-7F, 0x1.5558f4p-5F, 0x1.55549p-3F,
                                     0x1.fffffcp-2F, 1.0F, 1.0F});
  return std::ldexp(power, static_cast<int>(n));
}

float ratio_log(float q) {
  const float u = q * q;
  const float p = polynomial(u, {0x1.1ef83ep-2F, 0x1.1eb61cp-2F, 0x1.99d27ap-2F, 0x1.5555p-1F});
  return std::fma(q * u, p, q + q);
}

float router_tanh(float x) {
  const float magnitude = std::fabs(x);
  if (magnitude <= 0.625F) {
    const float v = x * x;
    const float p = polynomial(
        v, {-0x1.76ac3p-8F, 0x1.5256dcp-6F, -0x1.b8444ap-5F, 0x1.110768p-3F, -0x1.555534p-2F});
    return std::fma(x * v, p, x);
  }
  const float t = router_exp(-2.0F * magnitude);
  return std::copysign((1.0F - t) / (1.0F + t), x);
}

float router_sigmoid(float z) {
  const float t = router_exp(-std::fabs(z));
  const float inverse = 1.0F / (1.0F + t);
  return (z < 0.0F ? t : 1.0F) * inverse;
}

float router_sqrt_softplus(float z) {
  const float t = router_exp(-std::fabs(z));
  const float inverse = 1.0F / (2.0F + t);
  return std::sqrt((z > 0.0F ? z : 0.0F) + ratio_log(t * inverse));
}

float sum_experts(std::span<const float> values, std::int64_t neighbors) {
  std::array<float, 32> sums = {};
  for (std::size_t i = 0; i < values.size(); ++i) sums[i / neighbors] += values[i];
  return tree(sums);
}

float sum_choices(std::span<const float> values) { return sum_experts(values, 1); }

SoftmaxParts softmax_parts(std::span<const float> z, std::int64_t neighbors,
                           std::span<float> powers) {
  float largest = -std::numeric_limits<float>::infinity();
  for (const float value : z)
    if (value > largest) largest = value;
  for (std::size_t i = 0; i < z.size(); ++i) powers[i] = router_exp(z[i] - largest);
  return {.largest = largest, .sum = sum_experts(powers, neighbors)};
}

float log_sum_exp(const SoftmaxParts& parts) {
  // 0.75 is the bits 0x3f400000: the sum is f * 2^k with 0.75 <= f < 1.5.
  const auto k = static_cast<std::int32_t>(bits_of(parts.sum) - 0x3f400000U) >> 23;
  const float f = std::ldexp(parts.sum, -k);
  const float log = ratio_log((f - 1.0F) / (f + 1.0F));
  return parts.largest + std::fma(static_cast<float>(k), 0x1.62e43p-1F, log);
}

}  // namespace moejit::reference
