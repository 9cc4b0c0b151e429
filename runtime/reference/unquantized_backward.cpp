// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/unquantized_backward.h"

#include "runtime/reference/number_formats.h"

#include <cmath>

namespace moejit::reference {
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
