// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/activation.h"

#include "runtime/reference/block_scale.h"
#include "runtime/reference/number_formats.h"

#include <algorithm>
#include <cmath>

namespace moejit::reference {
namespace {

float activation_scale_inv(float amax) {
  if (std::isinf(amax)) return 1.0F;
  return power_of_two_scale_inv(std::fmax(amax, kActivationEps), kE4m3Max);
}

}  // namespace

std::vector<float> activate(std::span<const std::uint16_t> h1, std::span<const float> probs,
                            std::int64_t rows, std::int64_t intermediate,
                            const GatedActivation& activation) {
  std::vector<float> y(rows * intermediate);
  for (std::int64_t i = 0; i < rows * intermediate; ++i) {
    const std::int64_t row = i / intermediate;
    if (!activation.has_gate) {
      y[i] = activation.fp32_value(0.0F, float_from_bf16(h1[i])) * probs[row];
      continue;
    }
    const std::int64_t gate_index = row * 2 * intermediate + i % intermediate;
    const float value = activation.fp32_value(float_from_bf16(h1[gate_index]),
                                              float_from_bf16(h1[gate_index + intermediate]));
    y[i] = value * probs[row];
  }
  return y;
}

std::vector<float> swiglu(std::span<const std::uint16_t> h1, std::span<const float> probs,
                          std::int64_t rows, std::int64_t intermediate) {
  return activate(h1, probs, rows, intermediate, swiglu_activation());
}

QuantizedRows quantize_activation(std::span<const float> values, const Route& route,
                                  std::int64_t cols, std::int64_t sharing) {
  const std::int64_t blocks = block_count(cols);
  const std::vector<std::uint8_t> is_real = real_rows(route);
  QuantizedRows result{route.rows(), cols, {}, {}};
  result.q.assign(route.rows() * cols, 0);
  result.scale_inv.assign(route.rows() * blocks, 0.0F);
  for (std::int64_t row = 0; row < route.rows(); ++row) {
    if (is_real[row] == 0) continue;
    for (std::int64_t block = 0; block < blocks; block += sharing) {
      const std::int64_t first_col = block * kBlock;
      const std::int64_t first = row * cols + first_col;
      const std::int64_t end = first + std::min(sharing * kBlock, cols - first_col);
      float amax = 0.0F;
      for (std::int64_t k = first; k < end; ++k) amax = std::fmax(amax, std::fabs(values[k]));
      const float scale_inv = activation_scale_inv(amax);
      for (std::int64_t k = first; k < end; ++k) result.q[k] = encode_e4m3(values[k] / scale_inv);
      for (std::int64_t i = block; i < std::min(block + sharing, blocks); ++i)
        result.scale_inv[row * blocks + i] = scale_inv;
    }
  }
  return result;
}

QuantizedRows activation_quantize(std::span<const std::uint16_t> h1, std::span<const float> probs,
                                  const Route& route, std::int64_t intermediate,
                                  std::int64_t sharing, const GatedActivation& activation) {
  return quantize_activation(activate(h1, probs, route.rows(), intermediate, activation), route,
                             intermediate, sharing);
}

bool is_near_scale_step(float amax) {
  if (amax <= 0.0F || !std::isfinite(amax)) return false;
  int exponent = 0;
  const double mantissa = std::frexp(static_cast<double>(amax), &exponent);  // [0.5, 1)
  return std::fabs(mantissa / 0.875 - 1.0) <= 0x1p-20;                       // 448 = 0.875 * 2^9
}

}  // namespace moejit::reference
