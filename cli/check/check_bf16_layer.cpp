// SPDX-License-Identifier: Apache-2.0
#include "cli/check/check_bf16_layer.h"

#include "cli/check/bias.h"
#include "cli/check/check_weight_gradient.h"
#include "cli/check/choose.h"
#include "cli/check/reference_activation.h"
#include "cli/check/sampled_gemm.h"
#include "cli/tensors/routing_tensors.h"
#include "runtime/reference/activation_gradient.h"
#include "runtime/reference/bf16_gemm.h"
#include "runtime/reference/gate_up_layout.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/scaled_dot.h"

#include <algorithm>
#include <cmath>

namespace moejit::cli {
namespace {

using reference::block_count;
using reference::float_from_bf16;

// About ten seconds of the reference on two cores each.
constexpr int64_t kMaxMultiplyAdds = int64_t{1} << 32;
constexpr double kMaxGradientMultiplyAdds = 0x1p31;

// Relative error of an activation before it is rounded to bf16: the sigmoid's, and four roundings.
constexpr double kActivationError = 0x1p-17 + 4 * 0x1p-24;

class Bf16Check {
 public:
  Bf16Check(const compiler::Layer& layer, const TensorMap& inputs, const TensorMap& results)
      : layer_(layer),
        results_(layer, results),
        shape_(results_.shape()),
        inputs_(inputs),
        activation_(reference_of(layer.activation)) {}

  std::vector<TensorCheck> run_forward() {
    const int64_t tokens = inputs_.at("x").shape.front(), hidden = shape_.hidden;
    const std::vector<float> probs = probabilities(inputs_.at("topk_probs"));
    if (!check_route(tokens)) return results_.take_checks();
    check_permuted("permuted", "x", probs);
    check_gemm("h1", "permuted", weights("w1", h1_columns(), hidden, false),
               bias_of_fc1(results_, layer_, inputs_));
    check_activation();
    check_gemm("h2", "act", weights("w2", hidden, shape_.intermediate, false),
               bias_of_fc2(results_, layer_, inputs_));
    check_rows("y", reference::unpermute(bits("h2"), route_.row_map, tokens, shape_.top_k, hidden));
    return results_.take_checks();
  }

  std::vector<TensorCheck> run_backward() {
    const int64_t tokens = inputs_.at("x").shape.front(), hidden = shape_.hidden;
    route_ = results_.route();
    check_permuted("grad_permuted", "dy", {});
    // What the gradients that the layer computes need.
    if (results_.has("dact"))
      check_gemm("dact", "grad_permuted", weights("w2", shape_.intermediate, hidden, true));
    if (results_.has("dw2")) check_weight_gradient("dw2", "grad_permuted", "act");
    if (results_.has("dh1") || results_.has("dprobs_blocks")) check_activation_gradient();
    if (results_.has("dw1")) check_weight_gradient("dw1", "dh1", "permuted");
    if (results_.has("dx")) {
      check_gemm("dx_permuted", "dh1", weights("w1", hidden, h1_columns(), true));
      check_rows("dx", reference::unpermute(bits("dx_permuted"), route_.row_map, tokens,
                                            shape_.top_k, hidden));
    }
    if (results_.has("dprobs")) results_.check_dprobs();
    for (TensorCheck& check : check_bias_gradients(results_, layer_, inputs_))
      results_.add(std::move(check));
    return results_.take_checks();
  }

 private:
  int64_t h1_columns() const { return w1_sections(shape_) * shape_.intermediate; }
  // What a row of h1 has for a column of the activation; a gate of 0 where there is none.
  struct GateAndUp {
    double gate = 0.0, up = 0.0;
  };
  GateAndUp gate_and_up(std::span<const uint16_t> h1, int64_t row, int64_t i) const {
    const int64_t first = row * h1_columns();
    if (!shape_.has_gate) return {.up = float_from_bf16(h1[first + i])};
    return {float_from_bf16(h1[first + h1_column(false, i)]),
            float_from_bf16(h1[first + h1_column(true, i)])};
  }
  // Columns of h1 have the order of w1's rows.
  int64_t h1_column(bool is_up, int64_t i) const {
    if (shape_.is_interleaved) return 2 * i + (is_up ? 1 : 0);
    return is_up && shape_.has_gate ? shape_.intermediate + i : i;
  }
  std::span<const uint16_t> bits(std::string_view name) const {
    return elements<uint16_t>(results_.at(name));
  }
  reference::Bf16Weights weights(std::string_view name, int64_t columns, int64_t depth,
                                 bool is_transposed) const {
    return {elements<uint16_t>(inputs_.find(name)->second), columns, depth, is_transposed};
  }

  bool check_route(int64_t tokens) {
    route_ = reference::route(expert_ids(inputs_.at("topk_ids")), tokens, shape_);
    const bool counts = results_.check_integers("counts", 1, route_.counts);
    const bool offs = results_.check_integers("offs", 1, route_.offs);
    const bool row_map = results_.check_integers("row_map", shape_.top_k, route_.row_map);
    results_.check_saved_tokens(tokens);
    if (!counts || !offs || !row_map) return false;
    std::vector<float> permuted_probs(static_cast<size_t>(route_.rows()), 0.0f);
    const std::vector<float> probs = probabilities(inputs_.at("topk_probs"));
    for (size_t i = 0; i < route_.row_map.size(); ++i)
      if (route_.row_map[i] >= 0) permuted_probs[static_cast<size_t>(route_.row_map[i])] = probs[i];
    results_.check_floats("permuted_probs", 1, permuted_probs);
    return true;
  }

  void check_rows(std::string_view tensor, const std::vector<uint16_t>& wanted) {
    const int64_t columns = results_.at(tensor).shape.back();
    results_.add(check_of(tensor, testing::compare_bf16({tensor, columns}, bits(tensor), wanted)));
  }

  void check_permuted(std::string_view tensor, std::string_view input,
                      std::span<const float> probs) {
    const HostTensor& rows = inputs_.find(input)->second;
    check_rows(tensor, reference::permute_pad_bf16(elements<uint16_t>(rows), shape_.hidden, probs,
                                                   route_, shape_.top_k));
  }

  void check_gemm(std::string_view tensor, std::string_view rows,
                  const reference::Bf16Weights& weights, const Bias& bias = {}) {
    const RowSample sample = sample_rows(
        route_, kMaxMultiplyAdds / std::max<int64_t>(1, weights.columns * weights.depth));
    const std::vector<uint16_t> a = gather_rows(bits(rows), weights.depth, sample.source_rows);
    const std::vector<uint16_t> got =
        gather_rows(bits(tensor), weights.columns, sample.source_rows);
    reference::GemmExact wanted = reference::bf16_grouped_gemm_exact(a, weights, sample.route);
    add_bias(bias, sample.route, sample.source_rows, weights.columns, wanted);
    TensorCheck check = check_within(
        tensor,
        testing::compare_bf16_within({tensor, weights.columns}, got, wanted.value, wanted.bound));
    check.verdict += sampled_text(std::ssize(sample.source_rows), route_.routed_rows(), "rows");
    results_.add(std::move(check));
  }

  void check_activation() {
    const int64_t intermediate = shape_.intermediate;
    const std::vector<uint8_t> is_real = reference::real_rows(route_);
    const std::span<const uint16_t> h1 = bits("h1");
    const std::span<const float> probs = elements<float>(results_.at("permuted_probs"));
    std::vector<double> values, bounds;
    for (int64_t row = 0; row < route_.rows(); ++row) {
      if (is_real[row] == 0) {
        values.insert(values.end(), intermediate, 0.0);
        bounds.insert(bounds.end(), intermediate, 0.0);
        continue;
      }
      for (int64_t i = 0; i < intermediate; ++i) {
        const auto [gate, up] = gate_and_up(h1, row, i);
        const double prob = probs[row];
        values.push_back(prob == 0.0 ? 0.0 : activation_.value(gate, up) * prob);
        // A function below 2^-126 may be 0, and meets these factors.
        const double subnormal = 0x1p-126 * (1.0 + std::fabs(gate)) * (2.0 + std::fabs(up));
        const double error = std::fabs(prob) * (activation_.value_error(gate, up) + subnormal) +
                             0x1p-24 * std::fabs(values.back()) + 0x1p-126;
        bounds.push_back(reference::with_bf16_rounding(error, values.back()));
      }
    }
    results_.add(check_within(
        "act", testing::compare_bf16_within({"act", intermediate}, bits("act"), values, bounds)));
  }

  // A gradient is a sum of products of dact, the probability, and functions of gate and up that
  // grow no faster than these; its terms may cancel, so that its error is that of the largest.
  void check_activation_gradient() {
    const int64_t intermediate = shape_.intermediate;
    const std::span<const uint16_t> h1 = bits("h1"), dact = bits("dact");
    const std::span<const float> probs = elements<float>(results_.at("permuted_probs"));
    const std::vector<uint16_t> sorted = shape_.is_interleaved
                                             ? reference::gate_first<uint16_t>(h1, intermediate, 1)
                                             : std::vector<uint16_t>(h1.begin(), h1.end());
    reference::ActivationGradients wanted = reference::activation_backward(
        sorted, dact, probs, route_.rows(), intermediate, activation_);
    reference::clear_pad_rows(wanted, route_, intermediate);
    const std::vector<uint8_t> is_real = reference::real_rows(route_);
    std::vector<double> values(static_cast<size_t>(route_.rows() * h1_columns()));
    std::vector<double> bounds = values;
    for (int64_t row = 0; row < route_.rows(); ++row) {
      if (is_real[row] == 0) continue;
      for (const bool is_up : {false, true}) {
        if (!is_up && !shape_.has_gate) continue;
        for (int64_t i = 0; i < intermediate; ++i) {
          const int64_t at = row * intermediate + i;
          const auto [gate, up] = gate_and_up(h1, row, i);
          const double gradient = double{float_from_bf16(dact[at])} * double{probs[row]};
          const double largest = std::fabs(gradient) * (1.0 + std::fabs(gate)) *
                                 (is_up && shape_.has_gate ? 1.0 : 1.0 + std::fabs(up));
          const auto in_dh1 = static_cast<size_t>(row * h1_columns() + h1_column(is_up, i));
          values[in_dh1] = is_up ? wanted.up[at] : wanted.gate[at];
          bounds[in_dh1] = reference::with_bf16_rounding(2 * kActivationError * largest + 0x1p-126,
                                                         values[in_dh1]);
        }
      }
    }
    if (results_.has("dh1"))
      results_.add(check_within(
          "dh1", testing::compare_bf16_within({"dh1", h1_columns()}, bits("dh1"), values, bounds)));
    if (!results_.has("dprobs_blocks")) return;
    results_.add(check_within(
        "dprobs_blocks", testing::compare_f32_within({"dprobs_blocks", block_count(intermediate)},
                                                     elements<float>(results_.at("dprobs_blocks")),
                                                     wanted.dprobs_blocks, wanted.dprobs_bounds)));
  }

  // Chosen columns of the tokens' rows, and of these an expert's.
  std::vector<uint16_t> columns_of(std::string_view name, const std::vector<int64_t>& columns,
                                   int64_t first, int64_t count) const {
    const int64_t pitch = results_.at(name).shape.back();
    const std::span<const uint16_t> all = bits(name);
    std::vector<uint16_t> chosen;
    for (int64_t row = first; row < first + count; ++row)
      for (const int64_t column : columns)
        chosen.push_back(all[static_cast<size_t>(row * pitch + column)]);
    return chosen;
  }

  void check_weight_gradient(std::string_view tensor, std::string_view a, std::string_view b) {
    const int64_t a_cols = results_.at(a).shape.back(), b_cols = results_.at(b).shape.back();
    const double affordable =
        std::sqrt(kMaxGradientMultiplyAdds /
                  std::max<double>(1.0, static_cast<double>(route_.routed_rows())));
    const auto chosen = [&](int64_t cols, uint64_t number) {
      return choose_affordable(reference::RandomStream(0, number), affordable, cols);
    };
    std::vector<size_t> at;
    std::vector<double> wanted, bound;
    for (size_t e = 0; e < route_.counts.size(); ++e) {
      const std::vector<int64_t> of_a = chosen(a_cols, 2 * e), of_b = chosen(b_cols, 2 * e + 1);
      const int32_t count = route_.counts[e];
      const reference::WeightGradientExact exact = reference::bf16_weight_gradient_exact(
          columns_of(a, of_a, route_.offs[e], count), std::ssize(of_a),
          columns_of(b, of_b, route_.offs[e], count), std::ssize(of_b),
          {.counts = {count}, .offs = {0, count}, .row_map = {}});
      wanted.insert(wanted.end(), exact.value.begin(), exact.value.end());
      bound.insert(bound.end(), exact.bound.begin(), exact.bound.end());
      for (const int64_t row : of_a)
        for (const int64_t column : of_b)
          at.push_back(e * static_cast<size_t>(a_cols * b_cols) +
                       static_cast<size_t>(row * b_cols + column));
    }
    results_.add(check_gradient_elements(results_, tensor, at, wanted, std::move(bound)));
  }

  const compiler::Layer& layer_;
  LayerResults results_;
  const reference::LayerShape& shape_;
  const TensorMap& inputs_;
  reference::GatedActivation activation_;
  reference::Route route_;
};

}  // namespace

std::vector<TensorCheck> check_bf16_forward(const compiler::Layer& layer, const TensorMap& inputs,
                                            const TensorMap& results) {
  return Bf16Check(layer, inputs, results).run_forward();
}

std::vector<TensorCheck> check_bf16_backward(const compiler::Layer& layer, const TensorMap& inputs,
                                             const TensorMap& results) {
  return Bf16Check(layer, inputs, results).run_backward();
}

}  // namespace moejit::cli
