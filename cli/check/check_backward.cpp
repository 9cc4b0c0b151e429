// SPDX-License-Identifier: Apache-2.0
#include "cli/check/check_backward.h"

#include "cli/check/bias.h"
#include "cli/check/check_activation.h"
#include "cli/check/check_bf16_layer.h"
#include "cli/check/check_weight_gradient.h"
#include "cli/check/layer_results.h"
#include "cli/check/reference_activation.h"
#include "cli/tensors/colwise_slices.h"
#include "runtime/reference/activation_gradient.h"
#include "runtime/reference/transpose.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

namespace moejit::cli {
namespace {

using reference::block_count;

class BackwardCheck {
 public:
  BackwardCheck(const compiler::Layer& layer, const TensorMap& inputs, const TensorMap& results)
      : layer_(layer),
        results_(layer, results),
        shape_(results_.shape()),
        padded_intermediate_(compiler::padded_intermediate(layer)),
        inputs_(inputs),
        activation_(reference_of(layer.activation)),
        route_(results_.route()),
        colwise_offs_(route_.offs) {
    if (!results.contains("colwise_offs")) return;
    colwise_offs_ = {0};
    for (const int32_t count : route_.counts)
      colwise_offs_.push_back(colwise_offs_.back() +
                              static_cast<int32_t>(block_count(count) * reference::kBlock));
    results_.check_integers("colwise_offs", 1, colwise_offs_);
  }

  // Returns the checks of the gradients that the layer computes, and of all that they need.
  std::vector<TensorCheck> run() {
    check_colwise_weights("w1", w1_sections(shape_));
    check_colwise_weights("w2", 1);
    check_gradient_rows();
    if (results_.has("dact"))
      results_.check_gemm("dact", results_.rows("grad_permuted"), results_.weights("w2_colwise", 1),
                          1);
    check_transpose(results_.has("grad_permuted_q") ? "grad_permuted" : "", "grad_colwise");
    check_transpose("act", "act_colwise");
    if (results_.has("dw2"))
      results_.add(check_weight_gradient(results_, "dw2", "grad", "act", colwise_offs_,
                                         {shape_.hidden, shape_.hidden}));
    if (results_.has("dh1_q") || results_.has("dprobs_blocks")) check_activation_gradient();
    check_transpose("dh1", "dh1_colwise");
    check_transpose("permuted", "x_colwise");
    if (results_.has("dw1"))
      results_.add(check_weight_gradient(
          results_, "dw1", "dh1", "x", colwise_offs_,
          {shape_.intermediate, padded_intermediate_, shape_.is_interleaved}));
    if (results_.has("dx_permuted"))
      results_.check_gemm("dx_permuted", results_.rows("dh1"), results_.weights("w1_colwise", 1),
                          1);
    check_sums();
    return results_.take_checks();
  }

 private:
  void check_colwise_weights(const std::string& name, int64_t sections) {
    if (!results_.has(name + "_colwise_q")) return;
    const reference::QuantizedWeights weights = results_.weights(name, sections);
    reference::ColwiseWeights wanted = reference::transpose(weights);
    int64_t columns = weights.rows;
    if (sections > 1) {
      wanted.q = filled_up<uint8_t>(wanted.q);
      columns = sections * padded_intermediate_;
    }
    results_.check_codes(name + "_colwise_q", columns, wanted.q);
    results_.check_floats(name + "_colwise_scale_inv", weights.scale_rows(), wanted.scale_inv);
  }

  // Returns the halves of I columns, gate and up, each filled up with zeros to I' columns.
  template <typename T>
  std::vector<T> filled_up(const std::vector<T>& halves) const {
    const int64_t columns = shape_.intermediate;
    std::vector<T> all;
    for (auto half = halves.begin(); half != halves.end(); half += columns) {
      all.insert(all.end(), half, half + columns);
      all.resize(all.size() + static_cast<size_t>(padded_intermediate_ - columns));
    }
    return all;
  }

  void check_gradient_rows() {
    const int64_t hidden = shape_.hidden, blocks = block_count(hidden);
    const HostTensor& dy = inputs_.find("dy")->second;
    const reference::QuantizedRows quantized =
        reference::quantize_1x128(elements<uint16_t>(dy), dy.shape.front(), hidden);
    results_.check_codes("dy_q", hidden, quantized.q);
    results_.check_floats("dy_scale_inv", blocks, quantized.scale_inv);
    if (!results_.has("grad_permuted_q")) return;
    const reference::QuantizedRows permuted = permuted_gradient();
    results_.check_codes("grad_permuted_q", hidden, permuted.q);
    results_.check_floats("grad_permuted_scale_inv", blocks, permuted.scale_inv);
  }

  reference::QuantizedRows permuted_gradient() const {
    return reference::permute_pad(results_.rows("dy"), route_, shape_.top_k);
  }

  // Columns that belong to no group are never written: they are passed over. Without a name the
  // rows are those of the gradient, which was gathered and not permuted.
  void check_transpose(std::string_view rows, const std::string& name) {
    if (!results_.has(name + "_q")) return;
    const HostTensor codes = join_column_blocks(results_.at(name + "_q"));
    const int64_t columns = codes.shape[1], tiles = columns / reference::kBlock;
    const reference::Transposed wanted = reference::transpose(
        rows.empty() ? permuted_gradient() : results_.rows(rows),
        {.counts = route_.counts, .offs = route_.offs, .output_offs = colwise_offs_}, columns,
        reference::Fp8Format::kE4m3, reference::TransposeRule::kIdeal, 0);
    const auto is_in_group = [&](int64_t tile) {
      for (size_t e = 0; e < route_.counts.size(); ++e) {
        const int64_t first = colwise_offs_[e] / reference::kBlock;
        if (tile >= first && tile < first + block_count(route_.counts[e])) return true;
      }
      return false;
    };
    std::vector<uint8_t> bytes = copy_elements<uint8_t>(codes);
    std::vector<float> scales = copy_elements<float>(results_.at(name + "_scale_inv"));
    for (int64_t tile = 0; tile < tiles; ++tile) {
      if (is_in_group(tile)) continue;
      for (size_t i = static_cast<size_t>(tile); i < scales.size(); i += static_cast<size_t>(tiles))
        scales[i] = wanted.scale_inv[i];
      for (size_t row = 0; row < static_cast<size_t>(codes.shape[0]); ++row) {
        const size_t first = row * static_cast<size_t>(columns) + static_cast<size_t>(tile) * 128;
        std::copy_n(wanted.bytes.begin() + first, 128, bytes.begin() + first);
      }
    }
    results_.add(
        check_of(name + "_q", testing::compare_e4m3({name, columns}, bytes, wanted.bytes)));
    results_.add(check_of(name + "_scale_inv",
                          testing::compare_f32({name, tiles}, scales, wanted.scale_inv)));
  }

  void check_activation_gradient() {
    const int64_t intermediate = shape_.intermediate, blocks = block_count(intermediate);
    reference::ActivationGradients wanted = reference::activation_backward(
        elements<uint16_t>(results_.at("h1")), elements<uint16_t>(results_.at("dact")),
        elements<float>(results_.at("permuted_probs")), route_.rows(), intermediate, activation_);
    reference::clear_pad_rows(wanted, route_, intermediate);
    if (results_.has("dh1_q")) check_gated_rows(wanted);
    if (!results_.has("dprobs_blocks")) return;
    // Where products leave fp32's range, a sum may be either infinity or, of both, no number.
    const std::span<const float> sums = elements<float>(results_.at("dprobs_blocks"));
    for (size_t i = 0; i < std::min(sums.size(), wanted.dprobs_blocks.size()); ++i)
      if (!std::isfinite(sums[i]) &&
          std::fabs(wanted.dprobs_blocks[i]) + wanted.dprobs_bounds[i] > double{FLT_MAX})
        wanted.dprobs_blocks[i] = sums[i];
    results_.add(check_within(
        "dprobs_blocks", testing::compare_f32_within({"dprobs_blocks", blocks}, sums,
                                                     wanted.dprobs_blocks, wanted.dprobs_bounds)));
  }

  void check_gated_rows(const reference::ActivationGradients& wanted) {
    const int64_t intermediate = shape_.intermediate;
    std::vector<float> values;  // gate, then up, row by row
    for (int64_t row = 0; row < route_.rows(); ++row)
      for (const std::vector<float>* half : {&wanted.gate, &wanted.up})
        if (!half->empty())
          values.insert(values.end(), half->begin() + row * intermediate,
                        half->begin() + (row + 1) * intermediate);
    for (TensorCheck& check :
         check_quantized("dh1", filled_up<float>(values), route_, 1, results_.rows("dh1")))
      results_.add(std::move(check));
  }

  void check_sums() {
    if (results_.has("dx")) check_dx();
    if (results_.has("dprobs")) results_.check_dprobs();
    for (TensorCheck& check : check_bias_gradients(results_, layer_, inputs_))
      results_.add(std::move(check));
  }

  void check_dx() {
    const HostTensor& dx = results_.at("dx");
    const std::vector<uint16_t> wanted =
        reference::unpermute(elements<uint16_t>(results_.at("dx_permuted")), route_.row_map,
                             dx.shape[0], shape_.top_k, shape_.hidden);
    results_.add(check_of(
        "dx", testing::compare_bf16({"dx", shape_.hidden}, elements<uint16_t>(dx), wanted)));
  }

  const compiler::Layer& layer_;
  LayerResults results_;
  const reference::LayerShape& shape_;
  int64_t padded_intermediate_;  // I'
  const TensorMap& inputs_;
  reference::GatedActivation activation_;
  reference::Route route_;
  std::vector<int32_t> colwise_offs_;
};

}  // namespace

std::vector<TensorCheck> check_backward(const compiler::Layer& layer, const TensorMap& inputs,
                                        const TensorMap& results) {
  if (!is_quantized(layer)) return check_bf16_backward(layer, inputs, results);
  return BackwardCheck(layer, inputs, results).run();
}

}  // namespace moejit::cli
