// SPDX-License-Identifier: Apache-2.0
#include "tests/support/reference_layer.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/parallel_for.h"
#include "tests/support/layer_inputs.h"

#include <cmath>
#include <utility>

namespace moejit::reference {
namespace {

double bf16_dot(const std::vector<double>& a, const std::uint16_t* b) {
  double sum = 0.0;
  for (std::size_t k = 0; k < a.size(); ++k) sum += a[k] * float_from_bf16(b[k]);
  return sum;
}

// Sends one token through one expert, all in fp64; w1 and w2 point at the expert's weights.
std::vector<double> unquantized_expert(const LayerShape& shape, const std::vector<double>& x,
                                       double prob, const std::uint16_t* w1,
                                       const std::uint16_t* w2) {
  std::vector<double> activation(shape.intermediate);
  parallel_for(shape.intermediate, [&](std::int64_t i) {
    const double gate = bf16_dot(x, w1 + i * shape.hidden);
    const double up = bf16_dot(x, w1 + (shape.intermediate + i) * shape.hidden);
    activation[i] = gate / (1.0 + std::exp(-gate)) * up * prob;
  });
  std::vector<double> y(shape.hidden);
  parallel_for(shape.hidden,
               [&](std::int64_t i) { y[i] = bf16_dot(activation, w2 + i * shape.intermediate); });
  return y;
}

}  // namespace

ReferenceForward reference_forward(const LayerShape& shape, const LayerInputs& inputs) {
  const std::int64_t experts = shape.experts, hidden = shape.hidden;
  const std::int64_t intermediate = shape.intermediate, sharing = shape.sharing;
  QuantizedWeights w1 = inputs.w1_quantized ? *inputs.w1_quantized
                                            : quantize_128x128(inputs.w1, experts, 2 * intermediate,
                                                               hidden, 2, sharing);
  QuantizedWeights w2 =
      inputs.w2_quantized ? *inputs.w2_quantized
                          : quantize_128x128(inputs.w2, experts, hidden, intermediate, 1, sharing);

  QuantizedRows x = quantize_1x128(inputs.x, inputs.tokens, hidden, kActivationEps, sharing);
  Route routed = route(inputs.topk_ids, inputs.tokens, shape);
  PermutedRows permuted = permute_pad(x, inputs.topk_probs, routed, shape.top_k);
  std::vector<std::uint16_t> h1 = grouped_gemm(permuted.data, w1, routed, sharing);
  QuantizedRows act = activation_quantize(h1, permuted.probs, routed, intermediate, sharing);
  std::vector<std::uint16_t> h2 = grouped_gemm(act, w2, routed, sharing);
  std::vector<std::uint16_t> y = unpermute(h2, routed.row_map, inputs.tokens, shape.top_k, hidden);

  return {.x_q = std::move(x.q),
          .x_scale_inv = std::move(x.scale_inv),
          .counts = std::move(routed.counts),
          .offs = std::move(routed.offs),
          .row_map = std::move(routed.row_map),
          .status = routed.status,
          .permuted_q = std::move(permuted.data.q),
          .permuted_scale_inv = std::move(permuted.data.scale_inv),
          .permuted_probs = std::move(permuted.probs),
          .w1_q = std::move(w1.q),
          .w1_scale_inv = std::move(w1.scale_inv),
          .w2_q = std::move(w2.q),
          .w2_scale_inv = std::move(w2.scale_inv),
          .h1 = std::move(h1),
          .act_q = std::move(act.q),
          .act_scale_inv = std::move(act.scale_inv),
          .h2 = std::move(h2),
          .y = std::move(y)};
}

std::vector<double> unquantized_forward(const LayerShape& shape, const LayerInputs& inputs) {
  const Route routed = route(inputs.topk_ids, inputs.tokens, shape);
  std::vector<double> y(inputs.tokens * shape.hidden, 0.0);
  for (std::int64_t i = 0; i < inputs.tokens * shape.top_k; ++i) {
    if (routed.row_map[i] < 0 || inputs.topk_probs[i] == 0.0F) continue;
    const std::int64_t token = i / shape.top_k;
    const std::int64_t expert = inputs.topk_ids[i];
    std::vector<double> x(shape.hidden);
    for (std::int64_t k = 0; k < shape.hidden; ++k) {
      x[k] = float_from_bf16(inputs.x[token * shape.hidden + k]);
    }
    const std::int64_t w1_start = expert * 2 * shape.intermediate * shape.hidden;
    const std::int64_t w2_start = expert * shape.hidden * shape.intermediate;
    const std::vector<double> part = unquantized_expert(shape, x, inputs.topk_probs[i],
                                                        &inputs.w1[w1_start], &inputs.w2[w2_start]);
    for (std::int64_t k = 0; k < shape.hidden; ++k) y[token * shape.hidden + k] += part[k];
  }
  return y;
}

namespace {

std::vector<double> values_of(std::span<const std::uint16_t> bf16) {
  std::vector<double> values;
  values.reserve(bf16.size());
  for (const std::uint16_t bits : bf16) values.push_back(float_from_bf16(bits));
  return values;
}

// Returns matrix [rows, cols] * vector [cols].
std::vector<double> multiply(const double* matrix, std::int64_t rows,
                             const std::vector<double>& vector) {
  const auto cols = static_cast<std::int64_t>(vector.size());
  std::vector<double> result(rows);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) result[r] += matrix[r * cols + c] * vector[c];
  return result;
}

// Returns matrix [rows, cols]^T * vector [rows].
std::vector<double> multiply_transposed(const double* matrix, std::int64_t cols,
                                        const std::vector<double>& vector) {
  std::vector<double> result(cols);
  for (std::size_t r = 0; r < vector.size(); ++r)
    for (std::int64_t c = 0; c < cols; ++c) result[c] += matrix[r * cols + c] * vector[r];
  return result;
}

// Adds a * b^T to matrix [a, b].
void add_outer(const std::vector<double>& a, const std::vector<double>& b, double* matrix) {
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < b.size(); ++j) matrix[i * b.size() + j] += a[i] * b[j];
}

// The gradients that one (token, expert) pair adds.
class PairGradients {
 public:
  PairGradients(const LayerShape& shape, const GatedActivation& activation, const double* w1,
                const double* w2)
      : shape_(shape), activation_(activation), w1_(w1), w2_(w2) {}

  void set_biases(const double* b1, const double* b2) {
    b1_ = b1;
    b2_ = b2;
  }

  // Adds the pair's gradients, and returns the probability's gradient.
  double add(const std::vector<double>& x, double prob, const std::vector<double>& dy, double* dw1,
             double* dw2, double* dx, double* db1, double* db2) const {
    const std::int64_t size = shape_.intermediate;
    const std::int64_t columns = w1_sections(shape_) * size, first_up = columns - size;
    std::vector<double> h1 = multiply(w1_, columns, x);
    for (std::int64_t i = 0; b1_ != nullptr && i < columns; ++i) h1[i] += b1_[i];
    const std::vector<double> dact = multiply_transposed(w2_, size, dy);
    std::vector<double> act(size), dh1(columns);
    double dprob = 0.0;
    for (std::int64_t i = 0; i < size; ++i) {
      const double gate = shape_.has_gate ? h1[i] : 0.0, up = h1[first_up + i];
      const double value = activation_.value(gate, up);
      act[i] = value * prob;
      dprob += value * dact[i];
      if (shape_.has_gate) dh1[i] = prob * activation_.gate_gradient(gate, up, dact[i]);
      dh1[first_up + i] = prob * activation_.up_gradient(gate, up, dact[i]);
    }
    for (std::int64_t h = 0; h < shape_.hidden; ++h) {
      if (b2_ != nullptr) dprob += b2_[h] * dy[h];
      db2[h] += prob * dy[h];
    }
    for (std::int64_t i = 0; i < columns; ++i) db1[i] += dh1[i];
    add_outer(dy, act, dw2);
    add_outer(dh1, x, dw1);
    const std::vector<double> part = multiply_transposed(w1_, shape_.hidden, dh1);
    for (std::int64_t h = 0; h < shape_.hidden; ++h) dx[h] += part[h];
    return dprob;
  }

 private:
  const LayerShape& shape_;
  const GatedActivation& activation_;
  const double* w1_;
  const double* w2_;
  const double* b1_ = nullptr;
  const double* b2_ = nullptr;
};

}  // namespace

UnquantizedGradients unquantized_backward(const LayerShape& shape, const LayerInputs& inputs,
                                          std::span<const std::uint16_t> dy,
                                          const GatedActivation& activation) {
  const Route routed = route(inputs.topk_ids, inputs.tokens, shape);
  const std::int64_t hidden = shape.hidden;
  const std::int64_t w1_size = w1_sections(shape) * shape.intermediate * hidden;
  const std::int64_t w2_size = hidden * shape.intermediate;
  const std::vector<double> x = values_of(inputs.x), gradient = values_of(dy);
  const std::vector<double> w1 = values_of(inputs.w1), w2 = values_of(inputs.w2);
  UnquantizedGradients result{std::vector<double>(inputs.tokens * hidden),
                              std::vector<double>(inputs.tokens * shape.top_k),
                              std::vector<double>(shape.experts * w1_size),
                              std::vector<double>(shape.experts * w2_size),
                              std::vector<double>(shape.experts * w1_size / hidden),
                              std::vector<double>(shape.experts * hidden)};
  const std::vector<double> b1 = values_of(inputs.b1), b2 = values_of(inputs.b2);
  const std::int64_t b1_size = w1_size / hidden;
  for (std::int64_t i = 0; i < inputs.tokens * shape.top_k; ++i) {
    if (routed.row_map[i] < 0) continue;
    const std::int64_t token = i / shape.top_k, expert = inputs.topk_ids[i];
    const auto row = [&](const std::vector<double>& matrix) {
      return std::vector<double>(matrix.begin() + token * hidden,
                                 matrix.begin() + (token + 1) * hidden);
    };
    // A probability of 0 makes zeros of the permuted row.
    const double prob = inputs.topk_probs[i];
    const std::vector<double> token_x = prob == 0.0 ? std::vector<double>(hidden) : row(x);
    PairGradients pair(shape, activation, &w1[expert * w1_size], &w2[expert * w2_size]);
    if (!b1.empty()) pair.set_biases(&b1[expert * b1_size], &b2[expert * hidden]);
    result.dprobs[i] = pair.add(token_x, prob, row(gradient), &result.dw1[expert * w1_size],
                                &result.dw2[expert * w2_size], &result.dx[token * hidden],
                                &result.db1[expert * b1_size], &result.db2[expert * hidden]);
  }
  return result;
}

}  // namespace moejit::reference
