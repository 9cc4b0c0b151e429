// SPDX-License-Identifier: Apache-2.0
#include "cli/check/check_forward.h"

#include "cli/check/bias.h"
#include "cli/check/check_activation.h"
#include "cli/check/check_bf16_layer.h"
#include "cli/check/layer_results.h"
#include "cli/check/reference_activation.h"
#include "cli/tensors/routing_tensors.h"
#include "runtime/reference/gate_up_layout.h"
#include "runtime/reference/reference.h"

#include <fmt/core.h>

namespace moejit::cli {
namespace {

class ForwardCheck {
 public:
  ForwardCheck(const compiler::Layer& layer, const TensorMap& inputs, const TensorMap& results)
      : layer_(layer),
        results_(layer, results),
        shape_(results_.shape()),
        inputs_(inputs),
        activation_(reference_of(layer.activation)),
        tokens_(inputs.at("x").shape.front()) {}

  std::vector<TensorCheck> run() {
    check_weights();
    check_quantize();
    // Everything below is laid out by the route: without it there is nothing to compare.
    if (!check_route()) return results_.take_checks();
    check_permute();
    results_.check_gemm("h1", results_.rows("permuted"),
                        results_.weights("w1", w1_sections(shape_)), shape_.sharing,
                        bias_of_fc1(results_, layer_, inputs_));
    for (TensorCheck& check : check_activation(copy_elements<uint16_t>(results_.at("h1")),
                                               copy_elements<float>(results_.at("permuted_probs")),
                                               route_, shape_, activation_, results_.rows("act")))
      results_.add(std::move(check));
    results_.check_gemm("h2", results_.rows("act"), results_.weights("w2", 1), shape_.sharing,
                        bias_of_fc2(results_, layer_, inputs_));
    check_unpermute();
    return results_.take_checks();
  }

 private:
  void check_weights() {
    for (const std::string name : {"w1", "w2"}) {
      const auto weights = inputs_.find(name);
      if (weights == inputs_.end()) continue;  // came quantised
      const std::vector<int64_t>& dims = weights->second.shape;
      std::vector<uint16_t> rows = copy_elements<uint16_t>(weights->second);
      if (shape_.is_interleaved && name == "w1")
        rows = reference::gate_first<uint16_t>(rows, shape_.intermediate, dims[2]);
      const reference::QuantizedWeights wanted = reference::quantize_128x128(
          rows, dims[0], dims[1], dims[2], name == "w1" ? w1_sections(shape_) : 1, shape_.sharing);
      results_.check_codes(name + "_q", dims[2], wanted.q);
      results_.check_floats(name + "_scale_inv", reference::block_count(dims[2]), wanted.scale_inv);
    }
  }

  void check_quantize() {
    const reference::QuantizedRows wanted =
        reference::quantize_1x128(elements<uint16_t>(inputs_.at("x")), tokens_, shape_.hidden,
                                  reference::kActivationEps, shape_.sharing);
    results_.check_codes("x_q", shape_.hidden, wanted.q);
    results_.check_floats("x_scale_inv", reference::block_count(shape_.hidden), wanted.scale_inv);
  }

  bool check_route() {
    route_ = reference::route(expert_ids(inputs_.at("topk_ids")), tokens_, shape_);
    const bool counts = results_.check_integers("counts", 1, route_.counts);
    const bool offs = results_.check_integers("offs", 1, route_.offs);
    const bool row_map = results_.check_integers("row_map", shape_.top_k, route_.row_map);
    results_.check_saved_tokens(tokens_);
    return counts && offs && row_map;
  }

  void check_permute() {
    const reference::PermutedRows wanted = reference::permute_pad(
        results_.rows("x"), probabilities(inputs_.at("topk_probs")), route_, shape_.top_k);
    results_.check_codes("permuted_q", shape_.hidden, wanted.data.q);
    results_.check_floats("permuted_scale_inv", reference::block_count(shape_.hidden),
                          wanted.data.scale_inv);
    results_.check_floats("permuted_probs", 1, wanted.probs);
    if (results_.has("row_tokens")) check_row_tokens();
  }

  // Checks the tokens of real rows; those of pad rows are never written.
  void check_row_tokens() {
    std::vector<int32_t> wanted = copy_elements<int32_t>(results_.at("row_tokens"));
    const std::vector<float> probs = probabilities(inputs_.at("topk_probs"));
    for (size_t i = 0; i < route_.row_map.size(); ++i) {
      const auto token = static_cast<int32_t>(static_cast<int64_t>(i) / shape_.top_k);
      if (route_.row_map[i] >= 0)
        wanted[static_cast<size_t>(route_.row_map[i])] = probs[i] == 0.0f ? ~token : token;
    }
    results_.check_integers("row_tokens", 1, wanted);
  }

  void check_unpermute() {
    const std::vector<uint16_t> wanted =
        reference::unpermute(elements<uint16_t>(results_.at("h2")), route_.row_map, tokens_,
                             shape_.top_k, shape_.hidden);
    results_.add(check_of(
        "y",
        testing::compare_bf16({"y", shape_.hidden}, elements<uint16_t>(results_.at("y")), wanted)));
  }

  const compiler::Layer& layer_;
  LayerResults results_;
  const reference::LayerShape& shape_;
  const TensorMap& inputs_;
  reference::GatedActivation activation_;
  int64_t tokens_;
  reference::Route route_;
};

}  // namespace

std::vector<TensorCheck> check_forward(const compiler::Layer& layer, const TensorMap& inputs,
                                       const TensorMap& results) {
  if (!is_quantized(layer)) return check_bf16_forward(layer, inputs, results);
  return ForwardCheck(layer, inputs, results).run();
}

}  // namespace moejit::cli
