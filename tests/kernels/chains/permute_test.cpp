// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/route.h"
#include "templates/moejit_device/params/row_chain_params.h"
#include "tests/kernels/chains/chain_runner.h"
#include "tests/support/edge_cases.h"
#include "tests/support/layer_inputs.h"

#include <algorithm>

namespace moejit::testing {
namespace {

using reference::block_count;

enum class Composition { kPermute, kQuantizePermute, kQuantizePermuteKeep };

compiler::RowChainSpec spec_of(Composition composition, const reference::LayerShape& shape) {
  compiler::RowChainSpec spec{.quantize = quantize_stage(shape.sharing),
                              .store = compiler::StoreStage::kPermuted,
                              .columns = static_cast<int32_t>(shape.hidden),
                              .local_experts = static_cast<int32_t>(shape.experts),
                              .top_k = static_cast<int32_t>(shape.top_k),
                              .epsilon = reference::kActivationEps};
  if (composition == Composition::kPermute) {
    spec.load = compiler::LoadStage::kQuantizedRows;
    spec.quantize = compiler::QuantizeStage::kKeep;
    spec.epsilon = 0.0f;
  }
  if (composition == Composition::kQuantizePermuteKeep) {
    spec.store = compiler::StoreStage::kRowsAndPermuted;
  }
  return spec;
}

class PermuteKernel : public Chains {
 protected:
  // Of the input no more than the first `tokens_in_memory` tokens are there: what reads others ends
  // the simulator's launch.
  void expect_equal(Composition composition, const reference::LayerShape& shape,
                    const reference::LayerInputs& inputs, int64_t ctas, int64_t tokens_in_memory) {
    const int64_t hidden = shape.hidden;
    const int64_t blocks = block_count(hidden);
    const auto route = reference::route(inputs.topk_ids, inputs.tokens, shape);
    const auto quantized = reference::quantize_1x128(inputs.x, inputs.tokens, hidden,
                                                     reference::kActivationEps, shape.sharing);
    std::vector<uint16_t> bf16_probs;
    std::vector<float> given_probs = inputs.topk_probs;
    for (float& prob : given_probs) {
      bf16_probs.push_back(reference::bf16_from_float(prob));
      if (has_bf16_probs_) prob = reference::float_from_bf16(bf16_probs.back());
    }
    const auto wanted = reference::permute_pad(quantized, given_probs, route, shape.top_k);

    const DeviceBuffer x = input("x", head(inputs.x, tokens_in_memory * hidden));
    const DeviceBuffer x_q = input("x_q", head(quantized.q, tokens_in_memory * hidden));
    const DeviceBuffer x_scale_inv =
        input("x_scale_inv", head(quantized.scale_inv, tokens_in_memory * blocks));
    const DeviceBuffer probs =
        has_bf16_probs_ ? input("topk_probs", bf16_probs) : input("topk_probs", given_probs);
    const DeviceBuffer row_map = input("row_map", route.row_map);
    const DeviceBuffer counts = input("counts", route.counts);
    const DeviceBuffer offs = input("offs", route.offs);
    const DeviceBuffer q = output<uint8_t>("permuted_q", shape.max_rows * hidden);
    const DeviceBuffer scale_inv = output<float>("permuted_scale_inv", shape.max_rows * blocks);
    const DeviceBuffer out_probs = output<float>("permuted_probs", shape.max_rows);
    const DeviceBuffer kept_q = output<uint8_t>("kept", inputs.tokens * hidden);
    const DeviceBuffer kept_scale_inv = output<float>("kept_scale_inv", inputs.tokens * blocks);

    const bool is_quantized = composition == Composition::kPermute;
    const device::RowChainParams params{
        .input = is_quantized ? x_q.as<const void>() : x.as<const void>(),
        .input_scale_inv = x_scale_inv.as<const float>(),
        .probs = probs.as<const void>(),
        .row_map = row_map.as<const int32_t>(),
        .counts = counts.as<const int32_t>(),
        .offs = offs.as<const int32_t>(),
        .output = q.as<void>(),
        .output_scale_inv = scale_inv.as<float>(),
        .output_probs = out_probs.as<float>(),
        .kept_output = kept_q.as<void>(),
        .kept_scale_inv = kept_scale_inv.as<float>(),
        .rows = inputs.tokens};
    compiler::RowChainSpec spec = spec_of(composition, shape);
    spec.rows_per_burst = rows_per_burst_;
    if (has_bf16_probs_) spec.probs = compiler::DType::kBF16;
    run(spec, ctas, params,
        {&x, &x_q, &x_scale_inv, &probs, &row_map, &counts, &offs, &q, &scale_inv, &out_probs,
         &kept_q, &kept_scale_inv});

    const int64_t rows = route.rows();
    const auto got_q = q.download<uint8_t>();
    const auto got_scale_inv = scale_inv.download<float>();
    const auto got_probs = out_probs.download<float>();
    EXPECT_TRUE(
        matches(compare_e4m3({"permuted_q", hidden}, head(got_q, rows * hidden), wanted.data.q)));
    EXPECT_TRUE(matches(compare_f32({"permuted_scale_inv", blocks},
                                    head(got_scale_inv, rows * blocks), wanted.data.scale_inv)));
    EXPECT_TRUE(matches(compare_f32({"permuted_probs"}, head(got_probs, rows), wanted.probs)));
    EXPECT_TRUE(untouched_from(got_q, rows * hidden));
    EXPECT_TRUE(untouched_from(got_scale_inv, rows * blocks));
    EXPECT_TRUE(untouched_from(got_probs, rows));
    if (composition != Composition::kQuantizePermuteKeep) return;
    EXPECT_TRUE(matches(compare_e4m3({"kept", hidden}, kept_q.download<uint8_t>(), quantized.q)));
    EXPECT_TRUE(matches(compare_f32({"kept_scale_inv", blocks}, kept_scale_inv.download<float>(),
                                    quantized.scale_inv)));
  }

  void expect_equal_on_random(const reference::LayerShape& layer, int64_t tokens, int64_t ctas,
                              uint64_t seed) {
    reference::LayerShape shape = layer;
    shape.max_rows = reference::enough_rows(tokens, shape);
    reference::LayerInputs inputs;
    inputs.tokens = tokens;
    inputs.x = reference::random_activations(tokens, shape.hidden, seed);
    inputs.topk_ids = reference::random_routing(tokens, shape.experts, shape.top_k, {seed},
                                                {.unrouted_share = 0.2, .may_repeat = true});
    inputs.topk_probs = reference::random_probs(tokens, shape.top_k, seed);
    for (size_t i = 0; i < inputs.topk_probs.size(); i += 7) inputs.topk_probs[i] = 0.0f;
    for (const Composition composition : {Composition::kPermute, Composition::kQuantizePermute,
                                          Composition::kQuantizePermuteKeep}) {
      SCOPED_TRACE(static_cast<int>(composition));
      expect_equal(composition, shape, inputs, ctas, tokens);
    }
  }

  int32_t rows_per_burst_ = 0;
  bool has_bf16_probs_ = false;
};

TEST_F(PermuteKernel, EqualsTheReferenceOnTheEdgeCases) {
  for (const std::string& name : edge_case_names()) {
    SCOPED_TRACE(name);
    const EdgeCase layer = edge_case(name).value();
    expect_equal(Composition::kQuantizePermute, layer.shape, layer.inputs, 3, layer.inputs.tokens);
  }
}

TEST_F(PermuteKernel, GivesTheSameForAnyNumberOfCtasAndOrderOfThreads) {
  const reference::LayerShape shape{.experts = 7, .top_k = 3, .hidden = 272, .alignment = 16};
  uint64_t seed = 1;
  for (const int64_t ctas : {1, 3, 60}) {
    open(seed);
    expect_equal_on_random(shape, 37, ctas, seed++);
  }
}

TEST_F(PermuteKernel, DoesNotReadTokensWithoutARow) {
  constexpr int64_t kRouted = 21, kTokens = 37;
  reference::LayerShape shape{.experts = 7, .top_k = 8, .hidden = 272, .alignment = 16};
  shape.max_rows = reference::enough_rows(kTokens, shape);
  reference::LayerInputs inputs;
  inputs.tokens = kTokens;
  inputs.x = reference::random_activations(kTokens, shape.hidden, 1);
  inputs.topk_ids = reference::random_routing(kTokens, shape.experts, shape.top_k, {1},
                                              {.unrouted_share = 0.5, .may_repeat = true});
  std::fill(inputs.topk_ids.begin() + kRouted * shape.top_k, inputs.topk_ids.end(), -1);
  inputs.topk_probs = reference::random_probs(kTokens, shape.top_k, 1);
  expect_equal(Composition::kPermute, shape, inputs, 5, kRouted);
  expect_equal(Composition::kQuantizePermute, shape, inputs, 5, kRouted);
}

TEST_F(PermuteKernel, TakesMoreDestinationsThanASegmentHasLanes) {
  expect_equal_on_random({.experts = 12, .top_k = 12, .hidden = 144, .alignment = 8}, 20, 2, 1);
  expect_equal_on_random({.experts = 160, .top_k = 40, .hidden = 16, .alignment = 1}, 9, 2, 2);
}

TEST_F(PermuteKernel, GivesPairsOfBlocksTheScaleOfBoth) {
  for (const int64_t hidden : {128, 272, 400}) {
    SCOPED_TRACE(hidden);
    expect_equal_on_random(
        {.experts = 7, .top_k = 3, .hidden = hidden, .alignment = 16, .sharing = 2}, 37, 3, 1);
  }
}

// The last burst is not whole, and behind the last row there is nothing.
TEST_F(PermuteKernel, AsksL2ForRowsThatExist) {
  for (const auto& [hidden, rows] : {std::pair{16, 48}, {272, 16}, {1040, 32}}) {
    SCOPED_TRACE(hidden);
    rows_per_burst_ = rows;
    expect_equal_on_random({.experts = 7, .top_k = 3, .hidden = hidden, .alignment = 16}, 71, 90,
                           1);
    expect_equal_on_random({.experts = 7, .top_k = 3, .hidden = hidden, .alignment = 16}, 71, 2, 1);
  }
}

TEST_F(PermuteKernel, MovesProbabilitiesOf16Bits) {
  has_bf16_probs_ = true;
  for (const std::string name : {"zero_probability", "unrouted_ids", "no_tokens"}) {
    SCOPED_TRACE(name);
    const EdgeCase layer = edge_case(name).value();
    expect_equal(Composition::kQuantizePermute, layer.shape, layer.inputs, 3, layer.inputs.tokens);
  }
  expect_equal_on_random({.experts = 12, .top_k = 12, .hidden = 144, .alignment = 8}, 20, 2, 1);
}

TEST_F(PermuteKernel, PadsLargeGroups) {
  expect_equal_on_random({.experts = 5, .top_k = 2, .hidden = 128, .alignment = 128}, 70, 4, 3);
}

}  // namespace
}  // namespace moejit::testing
