// SPDX-License-Identifier: Apache-2.0
#include "cli/check/check_forward.h"

#include "cli/check/check_activation.h"
#include "cli/check/sampled_gemm.h"
#include "tests/support/reference/compare.h"
#include "tests/support/reference/reference.h"

#include <fmt/core.h>

namespace moejit::cli {
namespace {

using testing::Comparison;

// About ten seconds of the reference on two cores.
constexpr int64_t kMaxMultiplyAdds = int64_t{1} << 33;

TensorCheck exact(std::string_view tensor, const Comparison& comparison) {
  TensorCheck check{std::string(tensor), comparison.is_equal(), "exact",
                    comparison.message,  comparison.compared,   comparison.differing};
  if (!check.has_passed)
    check.verdict = fmt::format("{} of {} differ", check.differing, check.compared);
  return check;
}

class ForwardCheck {
 public:
  ForwardCheck(const compiler::Layer& layer, const TensorMap& inputs, const TensorMap& results)
      : shape_{.experts = layer.local_experts,
               .top_k = layer.top_k,
               .hidden = layer.hidden,
               .intermediate = layer.intermediate,
               .alignment = layer.splits_alignment,
               .max_rows = layer.max_permuted_rows,
               .sharing = layer.scale_sharing_k},
        inputs_(inputs),
        results_(results),
        tokens_(inputs.at("x").shape.front()) {}

  std::vector<TensorCheck> run() {
    check_weights();
    check_quantize();
    // Everything below is laid out by the route: without it there is nothing to compare.
    if (!check_route()) return std::move(checks_);
    check_permute();
    check_gemm("h1", rows_of("permuted_q", "permuted_scale_inv"), w1());
    for (TensorCheck& check : check_activation(copy_elements<uint16_t>(results_.at("h1")),
                                               copy_elements<float>(results_.at("permuted_probs")),
                                               route_, shape_, rows_of("act_q", "act_scale_inv")))
      checks_.push_back(std::move(check));
    check_gemm("h2", rows_of("act_q", "act_scale_inv"), w2());
    check_unpermute();
    return std::move(checks_);
  }

 private:
  reference::QuantizedRows rows_of(std::string_view q, std::string_view scale_inv) const {
    const HostTensor& codes = results_.find(q)->second;
    return {codes.shape[0], codes.shape[1], copy_elements<uint8_t>(codes),
            copy_elements<float>(results_.find(scale_inv)->second)};
  }

  reference::QuantizedWeights weights_of(const std::string& name, int64_t sections) const {
    const HostTensor& codes = results_.at(name + "_q");
    return {codes.shape[0],
            codes.shape[1],
            codes.shape[2],
            sections,
            copy_elements<uint8_t>(codes),
            copy_elements<float>(results_.at(name + "_scale_inv"))};
  }
  reference::QuantizedWeights w1() const { return weights_of("w1", 2); }
  reference::QuantizedWeights w2() const { return weights_of("w2", 1); }

  void check_codes(std::string_view tensor, int64_t columns, const std::vector<uint8_t>& wanted) {
    checks_.push_back(exact(
        tensor, testing::compare_e4m3({tensor, columns},
                                      elements<uint8_t>(results_.find(tensor)->second), wanted)));
  }
  void check_floats(std::string_view tensor, int64_t columns, const std::vector<float>& wanted) {
    checks_.push_back(exact(
        tensor, testing::compare_f32({tensor, columns},
                                     elements<float>(results_.find(tensor)->second), wanted)));
  }
  bool check_integers(std::string_view tensor, int64_t columns,
                      const std::vector<int32_t>& wanted) {
    checks_.push_back(exact(
        tensor, testing::compare_i32({tensor, columns},
                                     elements<int32_t>(results_.find(tensor)->second), wanted)));
    return checks_.back().has_passed;
  }

  void check_weights() {
    for (const std::string name : {"w1", "w2"}) {
      const auto weights = inputs_.find(name);
      if (weights == inputs_.end()) continue;  // came quantised
      const std::vector<int64_t>& dims = weights->second.shape;
      const reference::QuantizedWeights wanted =
          reference::quantize_128x128(elements<uint16_t>(weights->second), dims[0], dims[1],
                                      dims[2], name == "w1" ? 2 : 1, shape_.sharing);
      check_codes(name + "_q", dims[2], wanted.q);
      check_floats(name + "_scale_inv", reference::block_count(dims[2]), wanted.scale_inv);
    }
  }

  void check_quantize() {
    const reference::QuantizedRows wanted =
        reference::quantize_1x128(elements<uint16_t>(inputs_.at("x")), tokens_, shape_.hidden,
                                  reference::kActivationEps, shape_.sharing);
    check_codes("x_q", shape_.hidden, wanted.q);
    check_floats("x_scale_inv", reference::block_count(shape_.hidden), wanted.scale_inv);
  }

  bool check_route() {
    route_ = reference::route(elements<int32_t>(inputs_.at("topk_ids")), tokens_, shape_);
    const bool counts = check_integers("counts", 1, route_.counts);
    const bool offs = check_integers("offs", 1, route_.offs);
    const bool row_map = check_integers("row_map", shape_.top_k, route_.row_map);
    return counts && offs && row_map;
  }

  void check_permute() {
    const reference::PermutedRows wanted =
        reference::permute_pad(rows_of("x_q", "x_scale_inv"),
                               elements<float>(inputs_.at("topk_probs")), route_, shape_.top_k);
    check_codes("permuted_q", shape_.hidden, wanted.data.q);
    check_floats("permuted_scale_inv", reference::block_count(shape_.hidden),
                 wanted.data.scale_inv);
    check_floats("permuted_probs", 1, wanted.probs);
  }

  void check_gemm(std::string_view tensor, const reference::QuantizedRows& rows,
                  const reference::QuantizedWeights& weights) {
    const GemmSample sample = sample_gemm(rows, route_, weights.rows, kMaxMultiplyAdds);
    const std::vector<uint16_t> got = gather_rows(elements<uint16_t>(results_.find(tensor)->second),
                                                  weights.rows, sample.source_rows);
    const reference::GemmExact wanted =
        reference::grouped_gemm_exact(sample.rows, weights, sample.route, shape_.sharing);
    const Comparison comparison =
        testing::compare_bf16_within({tensor, weights.rows}, got, wanted.value, wanted.bound);
    TensorCheck check = exact(tensor, comparison);
    if (check.has_passed)
      check.verdict = fmt::format("{:.2g} of the bound", comparison.worst_ratio);
    int64_t real_rows = 0;
    for (const int32_t count : route_.counts) real_rows += count;
    if (sample.rows.rows < real_rows)
      check.verdict += fmt::format(" ({} of {} rows)", sample.rows.rows, real_rows);
    checks_.push_back(std::move(check));
  }

  void check_unpermute() {
    const std::vector<uint16_t> wanted =
        reference::unpermute(elements<uint16_t>(results_.at("h2")), route_.row_map, tokens_,
                             shape_.top_k, shape_.hidden);
    checks_.push_back(exact(
        "y",
        testing::compare_bf16({"y", shape_.hidden}, elements<uint16_t>(results_.at("y")), wanted)));
  }

  reference::LayerShape shape_;
  const TensorMap& inputs_;
  const TensorMap& results_;
  int64_t tokens_;
  reference::Route route_;
  std::vector<TensorCheck> checks_;
};

}  // namespace

std::vector<TensorCheck> check_forward(const compiler::Layer& layer, const TensorMap& inputs,
                                       const TensorMap& results) {
  return ForwardCheck(layer, inputs, results).run();
}

}  // namespace moejit::cli
