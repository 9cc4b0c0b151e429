// SPDX-License-Identifier: Apache-2.0
// Rows that have one scale, quantized on the way to their destinations, against the reference.
#include "compiler/kernels/row_chain.h"
#include "runtime/reference/casts.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/route.h"
#include "templates/moejit_device/params/row_chain_params.h"
#include "tests/kernels/chains/chain_runner.h"

namespace moejit::testing {
namespace {

using compiler::QuantizeStage;
using compiler::RowChainSpec;
using compiler::StoreStage;
using compiler::with_whole_rows;
using reference::kRowEps;

class ScaledPermuteKernel : public Chains {
 protected:
  struct Choice {
    bool keeps = false;
    bool moves_probs = true;
    bool tells_tokens = false;
    bool has_bf16_probs = false;
  };
  void expect_equal(const reference::LayerShape& layer, int64_t tokens, const Choice& choice,
                    int64_t ctas) {
    reference::LayerShape shape = layer;
    shape.max_rows = reference::enough_rows(tokens, shape);
    const int64_t hidden = shape.hidden;
    const auto ids = reference::random_routing(tokens, shape.experts, shape.top_k, {3});
    const auto route = reference::route(ids, tokens, shape);
    const auto values = reference::random_activations(tokens, hidden, 4);
    std::vector<float> probs = reference::random_probs(tokens, shape.top_k, 5);
    probs[1] = 0.0f;
    std::vector<uint16_t> bf16_probs;
    for (float& prob : probs) {
      bf16_probs.push_back(reference::bf16_from_float(prob));
      if (choice.has_bf16_probs) prob = reference::float_from_bf16(bf16_probs.back());
    }
    const auto quantized = reference::quantize_rows(values, tokens, hidden);
    const auto wanted =
        choice.moves_probs
            ? reference::permute_pad(quantized, probs, route, shape.top_k)
            : reference::PermutedRows{reference::permute_pad(quantized, route, shape.top_k), {}};

    const DeviceBuffer x = input("x", values);
    const DeviceBuffer in_probs =
        choice.has_bf16_probs ? input("topk_probs", bf16_probs) : input("topk_probs", probs);
    const DeviceBuffer row_map = input("row_map", route.row_map);
    const DeviceBuffer counts = input("counts", route.counts);
    const DeviceBuffer offs = input("offs", route.offs);
    const DeviceBuffer q = output<uint8_t>("q", shape.max_rows * hidden);
    const DeviceBuffer scale_inv = output<float>("scale_inv", shape.max_rows);
    const DeviceBuffer out_probs = output<float>("probs", shape.max_rows);
    const DeviceBuffer row_tokens = output<int32_t>("row_tokens", shape.max_rows);
    const DeviceBuffer kept = output<uint8_t>("kept", tokens * hidden);
    const DeviceBuffer kept_scale_inv = output<float>("kept_scale_inv", tokens);
    const device::RowChainParams params{.input = x.as<const void>(),
                                        .probs = in_probs.as<const void>(),
                                        .row_map = row_map.as<const int32_t>(),
                                        .counts = counts.as<const int32_t>(),
                                        .offs = offs.as<const int32_t>(),
                                        .output = q.as<void>(),
                                        .output_scale_inv = scale_inv.as<float>(),
                                        .output_probs = out_probs.as<float>(),
                                        .row_tokens = row_tokens.as<int32_t>(),
                                        .kept_output = kept.as<void>(),
                                        .kept_scale_inv = kept_scale_inv.as<float>(),
                                        .rows = tokens};
    const RowChainSpec spec = with_whole_rows(
        {.quantize = QuantizeStage::kRow,
         .store = choice.keeps ? StoreStage::kRowsAndPermuted : StoreStage::kPermuted,
         .columns = static_cast<int32_t>(hidden),
         .local_experts = static_cast<int32_t>(shape.experts),
         .top_k = static_cast<int32_t>(shape.top_k),
         .epsilon = kRowEps,
         .moves_probs = choice.moves_probs,
         .tells_tokens = choice.tells_tokens,
         .probs = choice.has_bf16_probs ? compiler::DType::kBF16 : compiler::DType::kF32});
    run(spec, ctas, params,
        {&x, &in_probs, &row_map, &counts, &offs, &q, &scale_inv, &out_probs, &row_tokens, &kept,
         &kept_scale_inv});

    const int64_t rows = route.rows();
    EXPECT_TRUE(matches(
        compare_e4m3({"q", hidden}, head(q.download<uint8_t>(), rows * hidden), wanted.data.q)));
    EXPECT_TRUE(untouched_from(q.download<uint8_t>(), rows * hidden));
    EXPECT_TRUE(matches(compare_f32({"scale_inv", 1}, head(scale_inv.download<float>(), rows),
                                    wanted.data.scale_inv)));
    EXPECT_TRUE(untouched_from(scale_inv.download<float>(), rows));
    if (choice.moves_probs) {
      EXPECT_TRUE(matches(
          compare_f32({"probs", 1}, head(out_probs.download<float>(), rows), wanted.probs)));
    } else {
      EXPECT_TRUE(untouched_from(out_probs.download<float>(), 0));
    }
    const auto told = row_tokens.download<int32_t>();
    if (!choice.tells_tokens) {
      EXPECT_TRUE(untouched_from(told, 0));
    }
    for (size_t i = 0; choice.tells_tokens && i < route.row_map.size(); ++i) {
      if (route.row_map[i] < 0) continue;
      const auto token = static_cast<int32_t>(static_cast<int64_t>(i) / shape.top_k);
      EXPECT_EQ(told[static_cast<size_t>(route.row_map[i])], probs[i] == 0.0f ? ~token : token);
    }
    if (!choice.keeps) return;
    EXPECT_TRUE(matches(compare_e4m3({"kept", hidden}, kept.download<uint8_t>(), quantized.q)));
    EXPECT_TRUE(matches(
        compare_f32({"kept_scale_inv", 1}, kept_scale_inv.download<float>(), quantized.scale_inv)));
  }
};

TEST_F(ScaledPermuteKernel, EqualsTheReference) {
  for (const int64_t hidden : {16, 272, 1296, 2880})
    for (const int64_t top_k : {1, 3, 11}) {
      SCOPED_TRACE(hidden);
      expect_equal({.experts = 13, .top_k = top_k, .hidden = hidden, .alignment = 16}, 21, {}, 3);
    }
}

TEST_F(ScaledPermuteKernel, KeepsRowsAndTellsTokensIfAsked) {
  const reference::LayerShape shape{.experts = 5, .top_k = 2, .hidden = 1040, .alignment = 16};
  expect_equal(shape, 19, {.keeps = true}, 2);
  expect_equal(shape, 19, {.tells_tokens = true}, 2);
  expect_equal(shape, 19, {.keeps = true, .tells_tokens = true, .has_bf16_probs = true}, 2);
  expect_equal(shape, 19, {.has_bf16_probs = true}, 2);
  expect_equal(shape, 19, {.moves_probs = false}, 2);
  expect_equal(shape, 19, {.keeps = true, .moves_probs = false}, 2);
}

}  // namespace
}  // namespace moejit::testing
