// SPDX-License-Identifier: Apache-2.0
#include "cli/check/bias.h"

#include "runtime/reference/gate_up_layout.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/sum_error.h"

#include <algorithm>
#include <cmath>

namespace moejit::cli {
namespace {

using compiler::GateUpLayout;
using reference::block_count;
using reference::float_from_bf16;

// Rows of gradients as they are added up: bf16, or codes times their scales.
class GradientRows {
 public:
  GradientRows(const LayerResults& results, bool is_quantized, const std::string& name)
      : is_quantized_(is_quantized), data_(results.at(is_quantized ? name + "_q" : name)) {
    if (is_quantized) scales_ = elements<float>(results.at(name + "_scale_inv"));
  }
  int64_t columns() const { return data_.shape[1]; }
  double value(int64_t row, int64_t column) const {
    const auto at = static_cast<size_t>(row * columns() + column);
    if (!is_quantized_) return float_from_bf16(elements<uint16_t>(data_)[at]);
    const int64_t block = row * block_count(columns()) + column / reference::kBlock;
    return double{reference::decode_e4m3(elements<uint8_t>(data_)[at])} *
           double{scales_[static_cast<size_t>(block)]};
  }

 private:
  bool is_quantized_;
  const HostTensor& data_;
  std::span<const float> scales_;
};

struct Sum {
  double value = 0.0, magnitude = 0.0;
  void add(double term) {
    value += term;
    magnitude += std::fabs(term);
  }
};

std::vector<uint16_t> bias_values(const TensorMap& inputs, std::string_view name) {
  const auto found = inputs.find(name);
  return found == inputs.end() ? std::vector<uint16_t>{} : copy_elements<uint16_t>(found->second);
}

class BiasCheck {
 public:
  BiasCheck(const LayerResults& results, const compiler::Layer& layer)
      : results_(results),
        layer_(layer),
        route_(results.route()),
        probs_(elements<float>(results.at("permuted_probs"))) {}

  // Sums of columns; `column_of` says which one of the rows becomes which one of the sums.
  template <typename ColumnOf>
  TensorCheck check_sums(std::string_view tensor, const std::string& rows, bool times_prob,
                         const ColumnOf& column_of) const {
    // Every 32nd row, then the 32 sums.
    constexpr int64_t kWalkers = 32;
    const GradientRows gradient(results_, is_quantized(layer_), rows);
    const int64_t columns = results_.at(tensor).shape[1];
    std::vector<double> wanted, bound;
    for (size_t e = 0; e < route_.counts.size(); ++e) {
      const int64_t count = route_.counts[e];
      for (int64_t column = 0; column < columns; ++column) {
        Sum sum;
        for (int64_t row = route_.offs[e]; row < route_.offs[e] + count; ++row)
          sum.add(gradient.value(row, column_of(column)) *
                  (times_prob ? double{probs_[static_cast<size_t>(row)]} : 1.0));
        wanted.push_back(sum.value);
        bound.push_back(reference::fp32_sum_error(sum.magnitude, count / kWalkers + kWalkers + 2) +
                        0x1p-120);
      }
    }
    return check_within(
        tensor, testing::compare_f32_within({tensor, columns}, elements<float>(results_.at(tensor)),
                                            wanted, bound));
  }

  // A lane adds up 16 columns of every fourth block, and five sums follow.
  TensorCheck check_dots(std::span<const uint16_t> bias) const {
    const GradientRows gradient(results_, is_quantized(layer_), "grad_permuted");
    const int64_t hidden = gradient.columns();
    std::vector<double> wanted(static_cast<size_t>(route_.rows())), bound = wanted;
    for (size_t e = 0; e < route_.counts.size(); ++e) {
      for (int64_t row = route_.offs[e]; row < route_.offs[e] + route_.counts[e]; ++row) {
        Sum sum;
        for (int64_t column = 0; column < hidden; ++column)
          sum.add(
              gradient.value(row, column) *
              float_from_bf16(bias[e * static_cast<size_t>(hidden) + static_cast<size_t>(column)]));
        wanted[static_cast<size_t>(row)] = sum.value;
        bound[static_cast<size_t>(row)] =
            reference::fp32_sum_error(sum.magnitude, 16 + block_count(hidden) / 4 + 1 + 5) +
            0x1p-120;
      }
    }
    return check_within(
        "bias_dprobs",
        testing::compare_f32_within({"bias_dprobs", 1}, elements<float>(results_.at("bias_dprobs")),
                                    wanted, bound));
  }

 private:
  const LayerResults& results_;
  const compiler::Layer& layer_;
  reference::Route route_;
  std::span<const float> probs_;
};

bool is_interleaved(const compiler::Layer& layer) {
  return layer.gate_up_layout == GateUpLayout::kInterleaved;
}

}  // namespace

Bias bias_of_fc1(const LayerResults&, const compiler::Layer& layer, const TensorMap& inputs) {
  std::vector<uint16_t> values = bias_values(inputs, "b1");
  if (is_quantized(layer) && is_interleaved(layer))
    values = reference::gate_first<uint16_t>(values, layer.intermediate, 1);
  return {.values = std::move(values), .probs = {}};
}

Bias bias_of_fc2(const LayerResults& results, const compiler::Layer&, const TensorMap& inputs) {
  return {.values = bias_values(inputs, "b2"),
          .probs = elements<float>(results.at("permuted_probs"))};
}

void add_bias(const Bias& bias, const reference::Route& route, std::span<const int64_t> source_rows,
              int64_t columns, reference::GemmExact& exact) {
  if (bias.values.empty()) return;
  for (size_t e = 0; e < route.counts.size(); ++e) {
    for (int64_t row = route.offs[e]; row < route.offs[e] + route.counts[e]; ++row) {
      const auto source = static_cast<size_t>(source_rows[static_cast<size_t>(row)]);
      const double prob = bias.probs.empty() ? 1.0 : double{bias.probs[source]};
      for (int64_t column = 0; column < columns; ++column) {
        const auto at = static_cast<size_t>(row * columns + column);
        const double added =
            prob * float_from_bf16(
                       bias.values[e * static_cast<size_t>(columns) + static_cast<size_t>(column)]);
        exact.value[at] += added;
        exact.bound[at] += 0x1p-8 * std::fabs(added) + 0x1p-23 * std::fabs(exact.value[at]);
      }
    }
  }
}

std::vector<TensorCheck> check_bias_gradients(const LayerResults& results,
                                              const compiler::Layer& layer,
                                              const TensorMap& inputs) {
  if (!layer.biases) return {};
  const BiasCheck check(results, layer);
  const int64_t half = layer.intermediate, padded = compiler::padded_intermediate(layer);
  const auto column_of_dh1 = [&](int64_t column) {
    if (!is_quantized(layer)) return column;
    const bool in_turn = is_interleaved(layer);
    const int64_t section = in_turn ? column % 2 : column / half;
    return section * padded + (in_turn ? column / 2 : column % half);
  };
  std::vector<TensorCheck> checks;
  if (results.has("bias_dprobs")) checks.push_back(check.check_dots(bias_values(inputs, "b2")));
  if (results.has("db2"))
    checks.push_back(
        check.check_sums("db2", "grad_permuted", true, [](int64_t column) { return column; }));
  if (results.has("db1")) checks.push_back(check.check_sums("db1", "dh1", false, column_of_dh1));
  return checks;
}

}  // namespace moejit::cli
