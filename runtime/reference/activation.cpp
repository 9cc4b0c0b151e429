// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/activation.h"

#include "runtime/reference/compare.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/scales.h"

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

namespace {

struct Element {
  double gate = 0.0, up = 0.0, gradient = 0.0;
};

// Bounds the error of a kernel's product of gradient and activation, whose last multiplication is
// rounded together with the sum. Below 2^-126 a function and its products may be 0 instead. Each of
// the three is off by that much, times its later factors, and offsets make `up` larger by at most
// 1.
double product_error(const GatedActivation& activation, const Element& at) {
  const double subnormal = 3 * 0x1p-126 * (1.0 + std::fabs(at.gate)) * (1.0 + std::fabs(at.up)) *
                           (1.0 + std::fabs(at.gradient));
  return activation.value_error(at.gate, at.up) * std::fabs(at.gradient) + subnormal;
}

// A block's sum. In any tree over eight chains of 16 products no product goes through more than
// 16 + 3 additions.
struct BlockSum {
  double sum = 0.0, magnitude = 0.0, error = 0.0;

  void add(const GatedActivation& activation, const Element& at) {
    const double product = activation.value(at.gate, at.up) * at.gradient;
    sum += product;
    magnitude += std::fabs(product);
    error += product_error(activation, at);
  }
  double bound() const { return error + fp32_sum_error(magnitude + error, 16 + 3); }
};

}  // namespace

ActivationGradients activation_backward(std::span<const std::uint16_t> h1,
                                        std::span<const std::uint16_t> dact,
                                        std::span<const float> probs, std::int64_t rows,
                                        std::int64_t intermediate,
                                        const GatedActivation& activation) {
  const std::int64_t blocks = block_count(intermediate);
  ActivationGradients result;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::vector<BlockSum> sums(blocks);
    for (std::int64_t i = 0; i < intermediate; ++i) {
      const std::int64_t index = row * intermediate + i;
      const std::int64_t gate_index = index + row * intermediate;
      const Element at =
          activation.has_gate
              ? Element{float_from_bf16(h1[gate_index]),
                        float_from_bf16(h1[gate_index + intermediate]),
                        float_from_bf16(dact[index])}
              : Element{0.0, float_from_bf16(h1[index]), float_from_bf16(dact[index])};
      if (activation.has_gate) {
        const double gate = activation.gate_gradient(at.gate, at.up, at.gradient);
        result.gate.push_back(static_cast<float>(gate * probs[row]));
      }
      const double up = activation.up_gradient(at.gate, at.up, at.gradient);
      result.up.push_back(static_cast<float>(up * probs[row]));
      sums[i / kBlock].add(activation, at);
    }
    for (const BlockSum& sum : sums) {
      result.dprobs_blocks.push_back(sum.sum);
      result.dprobs_bounds.push_back(sum.bound());
    }
  }
  return result;
}

void clear_pad_rows(ActivationGradients& gradients, const Route& route, std::int64_t intermediate) {
  const std::vector<std::uint8_t> is_real = real_rows(route);
  const auto clear = [&](auto& values, std::int64_t columns) {
    if (values.empty()) return;
    for (std::int64_t row = 0; row < route.rows(); ++row)
      if (is_real[row] == 0) std::fill_n(values.begin() + row * columns, columns, 0);
  };
  clear(gradients.gate, intermediate);
  clear(gradients.up, intermediate);
  clear(gradients.dprobs_blocks, block_count(intermediate));
  clear(gradients.dprobs_bounds, block_count(intermediate));
}

QuantizedActivationGradients activation_backward_quantize(
    std::span<const std::uint16_t> h1, std::span<const std::uint16_t> dact,
    std::span<const float> probs, const Route& route, std::int64_t intermediate,
    std::int64_t sharing, const GatedActivation& activation) {
  const std::int64_t blocks = block_count(intermediate);
  ActivationGradients exact =
      activation_backward(h1, dact, probs, route.rows(), intermediate, activation);
  clear_pad_rows(exact, route, intermediate);
  std::vector<QuantizedRows> halves;
  if (activation.has_gate)
    halves.push_back(quantize_activation(exact.gate, route, intermediate, sharing));
  halves.push_back(quantize_activation(exact.up, route, intermediate, sharing));
  QuantizedActivationGradients result{{}, {}, exact.dprobs_blocks, exact.dprobs_bounds};
  for (std::int64_t row = 0; row < route.rows(); ++row) {
    for (const QuantizedRows& half : halves) {
      const auto q = half.q.begin() + row * intermediate;
      const auto scale_inv = half.scale_inv.begin() + row * blocks;
      result.q.insert(result.q.end(), q, q + intermediate);
      result.scale_inv.insert(result.scale_inv.end(), scale_inv, scale_inv + blocks);
    }
  }
  return result;
}

}  // namespace moejit::reference
