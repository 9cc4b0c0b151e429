// SPDX-License-Identifier: Apache-2.0
#include "cli/check/layer_results.h"

#include "cli/check/bias.h"
#include "cli/check/sampled_gemm.h"
#include "runtime/reference/number_formats.h"

#include <algorithm>
#include <fmt/core.h>
#include <iterator>

namespace moejit::cli {
namespace {

// About ten seconds of the reference on two cores.
constexpr int64_t kMaxMultiplyAdds = int64_t{1} << 33;

}  // namespace

reference::LayerShape shape_of(const compiler::Layer& layer) {
  return {.experts = layer.local_experts,
          .top_k = layer.top_k,
          .hidden = layer.hidden,
          .intermediate = layer.intermediate,
          .alignment = layer.splits_alignment,
          .max_rows = layer.max_permuted_rows,
          .sharing = layer.scale_sharing_k,
          .has_gate = has_gate(layer.activation),
          .is_interleaved = layer.gate_up_layout == compiler::GateUpLayout::kInterleaved,
          .has_biases = layer.biases,
          .ignores_foreign = layer.foreign_experts == compiler::ForeignExperts::kIgnore};
}

reference::Route LayerResults::route() const {
  return {.counts = copy_elements<int32_t>(at("counts")),
          .offs = copy_elements<int32_t>(at("offs")),
          .row_map = copy_elements<int32_t>(at("row_map"))};
}

reference::QuantizedRows LayerResults::rows(std::string_view name) const {
  const HostTensor& codes = at(fmt::format("{}_q", name));
  return {codes.shape[0], codes.shape[1], copy_elements<uint8_t>(codes),
          copy_elements<float>(at(fmt::format("{}_scale_inv", name)))};
}

reference::QuantizedWeights LayerResults::weights(std::string_view name, int64_t sections) const {
  const HostTensor& codes = at(fmt::format("{}_q", name));
  return {codes.shape[0],
          codes.shape[1],
          codes.shape[2],
          sections,
          copy_elements<uint8_t>(codes),
          copy_elements<float>(at(fmt::format("{}_scale_inv", name)))};
}

void LayerResults::check_codes(std::string_view tensor, int64_t columns,
                               const std::vector<uint8_t>& wanted) {
  add(check_of(tensor,
               testing::compare_e4m3({tensor, columns}, elements<uint8_t>(at(tensor)), wanted)));
}

void LayerResults::check_floats(std::string_view tensor, int64_t columns,
                                const std::vector<float>& wanted) {
  add(check_of(tensor,
               testing::compare_f32({tensor, columns}, elements<float>(at(tensor)), wanted)));
}

bool LayerResults::check_integers(std::string_view tensor, int64_t columns,
                                  const std::vector<int32_t>& wanted) {
  add(check_of(tensor,
               testing::compare_i32({tensor, columns}, elements<int32_t>(at(tensor)), wanted)));
  return checks_.back().has_passed;
}

void LayerResults::check_gemm(std::string_view tensor, const reference::QuantizedRows& rows,
                              const reference::QuantizedWeights& weights, int64_t sharing) {
  check_gemm(tensor, rows, weights, sharing, Bias{});
}

void LayerResults::check_dprobs() {
  const int64_t blocks = reference::block_count(shape_.intermediate);
  const std::span<const float> sums = elements<float>(at("dprobs_blocks"));
  if (!shape_.has_biases)
    return check_dprobs(reference::unpermute_dprobs(sums, route().row_map, blocks));
  const std::span<const float> biases = elements<float>(at("bias_dprobs"));
  std::vector<float> all;
  for (size_t row = 0; row < biases.size(); ++row) {
    const auto first = sums.begin() + static_cast<int64_t>(row) * blocks;
    all.insert(all.end(), first, first + blocks);
    all.push_back(biases[row]);
  }
  check_dprobs(reference::unpermute_dprobs(all, route().row_map, blocks + 1));
}

// bf16 is one rounding of the sums.
void LayerResults::check_dprobs(const std::vector<float>& wanted) {
  if (at("dprobs").dtype == compiler::DType::kF32)
    return check_floats("dprobs", shape_.top_k, wanted);
  std::vector<uint16_t> rounded;
  std::ranges::transform(wanted, std::back_inserter(rounded), reference::bf16_from_float);
  add(check_of("dprobs", testing::compare_bf16({"dprobs", shape_.top_k},
                                               elements<uint16_t>(at("dprobs")), rounded)));
}

void LayerResults::check_saved_tokens(int64_t tokens) {
  if (!has("saved_tokens")) return;
  const int64_t got = elements<int64_t>(at("saved_tokens")).front();
  TensorCheck check{.tensor = "saved_tokens", .has_passed = got == tokens, .compared = 1};
  check.verdict = check.has_passed ? "exact" : "1 of 1 differ";
  if (!check.has_passed) check.message = fmt::format("got {}, wanted {}", got, tokens);
  check.differing = check.has_passed ? 0 : 1;
  add(std::move(check));
}

void LayerResults::check_gemm(std::string_view tensor, const reference::QuantizedRows& rows,
                              const reference::QuantizedWeights& weights, int64_t sharing,
                              const Bias& bias) {
  const reference::Route all = route();
  const GemmSample sample = sample_gemm(rows, all, weights.rows, kMaxMultiplyAdds);
  const std::vector<uint16_t> got =
      gather_rows(elements<uint16_t>(at(tensor)), weights.rows, sample.source_rows);
  reference::GemmExact wanted =
      reference::grouped_gemm_exact(sample.rows, weights, sample.route, sharing);
  add_bias(bias, sample.route, sample.source_rows, weights.rows, wanted);
  TensorCheck check = check_within(
      tensor,
      testing::compare_bf16_within({tensor, weights.rows}, got, wanted.value, wanted.bound));
  check.verdict += sampled_text(sample.rows.rows, all.routed_rows(), "rows");
  add(std::move(check));
}

}  // namespace moejit::cli
