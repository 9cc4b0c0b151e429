// SPDX-License-Identifier: Apache-2.0
// Operations over tokens and permuted rows, against the reference.
#include "runtime/reference/quantize.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/route.h"
#include "runtime/reference/two_level.h"
#include "tests/gpu/c_operation.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/matchers.h"

namespace moejit::testing {
namespace {

constexpr int64_t kTokens = 37, kTopK = 2, kExperts = 4, kColumns = 256, kBlocks = 2;
constexpr int64_t kRows = (kTokens * kTopK + kExperts * 15) / 16 * 16;
constexpr reference::LayerShape kShape{
    .experts = kExperts, .top_k = kTopK, .hidden = kColumns, .alignment = 16, .max_rows = kRows};

using OperationOverTokens = COperationTest;

struct Routed {
  std::vector<int32_t> ids = reference::random_routing(kTokens, kExperts, kTopK, {1});
  std::vector<float> probs = reference::random_probs(kTokens, kTopK, 2);
  reference::Route route = reference::route(ids, kTokens, kShape);
};

std::vector<uint16_t> bf16_rows(int64_t rows, uint64_t seed) {
  return reference::random_activations(rows, kColumns, seed);
}

// The rows that belong to a group, pad rows among them.
template <typename Element>
std::vector<Element> first_rows(std::vector<Element> values, const Routed& routed,
                                int64_t columns) {
  values.resize(static_cast<std::size_t>(routed.route.rows() * columns));
  return values;
}

void give_route(COperation& operation, const Routed& routed, bool has_groups = true) {
  operation.give("row_map", {kTokens, kTopK}, routed.route.row_map);
  if (!has_groups) return;
  operation.give("counts", {kExperts}, routed.route.counts);
  operation.give("offs", {kExperts + 1}, routed.route.offs);
}

void want_rows(COperation& operation, bool is_fp8) {
  operation.want("output", {kRows, kColumns});
  if (is_fp8) operation.want("output_scale_inv", {kRows, kBlocks});
}

void expect_rows(const COperation& operation, const Routed& routed,
                 const reference::QuantizedRows& wanted) {
  EXPECT_TRUE(matches(compare_e4m3({"output", kColumns},
                                   first_rows(operation.read<uint8_t>("output"), routed, kColumns),
                                   wanted.q)));
  EXPECT_TRUE(matches(compare_f32(
      {"output_scale_inv", kBlocks},
      first_rows(operation.read<float>("output_scale_inv"), routed, kBlocks), wanted.scale_inv)));
}

TEST_F(OperationOverTokens, Quantizes) {
  COperation operation(example_operation("quantize"));
  const auto input = reference::special_activations(kTokens, kColumns, 3);
  operation.give("input", {kTokens, kColumns}, input);
  operation.want("output", {kTokens, kColumns});
  operation.want("output_scale_inv", {kTokens, kBlocks});
  ASSERT_TRUE(is_ok(operation.run()));
  const auto wanted = reference::quantize_1x128(input, kTokens, kColumns);
  EXPECT_TRUE(matches(compare_e4m3({"output"}, operation.read<uint8_t>("output"), wanted.q)));
  EXPECT_TRUE(matches(compare_f32({"output_scale_inv"}, operation.read<float>("output_scale_inv"),
                                  wanted.scale_inv)));
}

TEST_F(OperationOverTokens, QuantizesWeightsInBothOrientations) {
  COperation operation(example_operation("quantize_weights"));
  const auto input = reference::random_weights(kExperts, 256, kColumns, 4);
  operation.give("input", {kExperts, 256, kColumns}, input);
  operation.want("output", {kExperts, 256, kColumns});
  operation.want("output_scale_inv", {kExperts, 2, kBlocks});
  operation.want("output_colwise", {kExperts, kColumns, 256});
  operation.want("output_colwise_scale_inv", {kExperts, kBlocks, 2});
  ASSERT_TRUE(is_ok(operation.run()));
  const auto wanted = reference::quantize_128x128(input, kExperts, 256, kColumns, 2);
  const auto colwise = reference::transpose(wanted);
  EXPECT_TRUE(matches(compare_e4m3({"output"}, operation.read<uint8_t>("output"), wanted.q)));
  EXPECT_TRUE(matches(compare_f32({"output_scale_inv"}, operation.read<float>("output_scale_inv"),
                                  wanted.scale_inv)));
  EXPECT_TRUE(matches(
      compare_e4m3({"output_colwise"}, operation.read<uint8_t>("output_colwise"), colwise.q)));
  EXPECT_TRUE(
      matches(compare_f32({"output_colwise_scale_inv"},
                          operation.read<float>("output_colwise_scale_inv"), colwise.scale_inv)));
}

TEST_F(OperationOverTokens, Routes) {
  COperation operation(example_operation("route"));
  const Routed routed;
  operation.give("topk_ids", {kTokens, kTopK}, routed.ids);
  operation.want("counts", {kExperts});
  operation.want("offs", {kExperts + 1});
  operation.want("row_map", {kTokens, kTopK});
  operation.give("status", {1}, std::vector<uint32_t>{0});
  ASSERT_TRUE(is_ok(operation.run()));
  EXPECT_EQ(operation.read<int32_t>("counts"), routed.route.counts);
  EXPECT_EQ(operation.read<int32_t>("offs"), routed.route.offs);
  EXPECT_EQ(operation.read<int32_t>("row_map"), routed.route.row_map);
  EXPECT_EQ(operation.read<uint32_t>("status"), (std::vector<uint32_t>{0}));
}

TEST_F(OperationOverTokens, PermutesRowsInFp8WithTheirProbabilities) {
  COperation operation(example_operation("permute_pad"));
  const Routed routed;
  const auto input = reference::quantize_1x128(bf16_rows(kTokens, 5), kTokens, kColumns);
  operation.give("input", {kTokens, kColumns}, input.q);
  operation.give("input_scale_inv", {kTokens, kBlocks}, input.scale_inv);
  operation.give("probs", {kTokens, kTopK}, routed.probs);
  give_route(operation, routed);
  want_rows(operation, true);
  operation.want("output_probs", {kRows});
  ASSERT_TRUE(is_ok(operation.run()));
  const auto wanted = reference::permute_pad(input, routed.probs, routed.route, kTopK);
  expect_rows(operation, routed, wanted.data);
  EXPECT_TRUE(matches(compare_f32({"output_probs"},
                                  first_rows(operation.read<float>("output_probs"), routed, 1),
                                  wanted.probs)));
}

TEST_F(OperationOverTokens, PermutesRowsInBf16) {
  COperation operation(example_operation("permute_pad", "fp8", "bf16"));
  const Routed routed;
  const auto input = bf16_rows(kTokens, 6);
  operation.give("input", {kTokens, kColumns}, input);
  operation.give("probs", {kTokens, kTopK}, routed.probs);
  give_route(operation, routed);
  want_rows(operation, false);
  operation.want("output_probs", {kRows});
  ASSERT_TRUE(is_ok(operation.run()));
  EXPECT_TRUE(matches(compare_bf16(
      {"output", kColumns}, first_rows(operation.read<uint16_t>("output"), routed, kColumns),
      reference::permute_pad_bf16(input, kColumns, routed.probs, routed.route, kTopK))));
}

// What a GEMM of Blackwell would read: rows that are cast below one scale of all tokens, permuted
// and swizzled, are those that are cast in the order of experts.
TEST_F(OperationOverTokens, PermutesRowsInFp4AsIfTheyWereCastAfterwards) {
  constexpr int64_t kCodes = kColumns / 2, kScales = 8 * kBlocks;
  const Routed routed;
  const auto x = bf16_rows(kTokens, 11);
  const float scale = reference::two_level_expert_scale(reference::amax_of_bf16(x)).scale;
  const auto cast = [scale](const std::vector<uint16_t>& rows, int64_t count) {
    return reference::quantize_two_levels(rows, count, kColumns, scale,
                                          reference::TwoLevelBlocks::kRows);
  };
  const auto given = cast(x, kTokens);
  COperation operation(example_operation("permute_pad", "fp8", "fp4"));
  operation.give("input", {kTokens, kCodes}, reference::packed_row_codes(given));
  operation.give("input_scale_inv", {kTokens, kScales}, reference::row_scales(given));
  operation.give("probs", {kTokens, kTopK}, routed.probs);
  give_route(operation, routed);
  operation.want("output", {kRows, kCodes});
  operation.want("output_scale_inv", {kRows, kScales});
  operation.want("output_probs", {kRows});
  ASSERT_TRUE(is_ok(operation.run()));
  const auto permuted = reference::permute_pad_bf16(x, kColumns, routed.probs, routed.route, kTopK);
  const auto wanted = cast(permuted, routed.route.rows());
  EXPECT_TRUE(matches(compare_bytes({"output", kCodes},
                                    first_rows(operation.read<uint8_t>("output"), routed, kCodes),
                                    reference::packed_row_codes(wanted))));
  const auto scales = first_rows(operation.read<uint8_t>("output_scale_inv"), routed, kScales);
  EXPECT_TRUE(
      matches(compare_bytes({"output_scale_inv", kScales}, scales, reference::row_scales(wanted))));
  reference::TransposeGroups groups{
      .counts = routed.route.counts, .offs = routed.route.offs, .output_offs = {0}};
  for (const int32_t count : groups.counts)
    groups.output_offs.push_back(groups.output_offs.back() + (count + 127) / 128 * 128);
  EXPECT_EQ(reference::swizzled_row_scales(scales, kColumns, groups),
            reference::swizzled_row_scales(reference::row_scales(wanted), kColumns, groups));
}

TEST_F(OperationOverTokens, QuantizesAndPermutesRows) {
  COperation operation(example_operation("quantize_permute_pad"));
  const Routed routed;
  const auto input = bf16_rows(kTokens, 7);
  operation.give("input", {kTokens, kColumns}, input);
  operation.give("probs", {kTokens, kTopK}, routed.probs);
  give_route(operation, routed);
  want_rows(operation, true);
  operation.want("output_probs", {kRows});
  ASSERT_TRUE(is_ok(operation.run()));
  expect_rows(operation, routed,
              reference::permute_pad(reference::quantize_1x128(input, kTokens, kColumns),
                                     routed.probs, routed.route, kTopK)
                  .data);
}

TEST_F(OperationOverTokens, PermutesTheRowsOfAGradient) {
  const Routed routed;
  const auto input = bf16_rows(kTokens, 8);
  COperation bf16(example_operation("permute_pad_grad"));
  COperation fp8(example_operation("quantize_permute_pad_grad"));
  for (COperation* operation : {&bf16, &fp8}) {
    operation->give("input", {kTokens, kColumns}, input);
    give_route(*operation, routed);
    want_rows(*operation, operation == &fp8);
    ASSERT_TRUE(is_ok(operation->run()));
  }
  EXPECT_TRUE(matches(compare_bf16(
      {"output", kColumns}, first_rows(bf16.read<uint16_t>("output"), routed, kColumns),
      reference::permute_pad_bf16(input, kColumns, {}, routed.route, kTopK))));
  expect_rows(fp8, routed,
              reference::permute_pad(reference::quantize_1x128(input, kTokens, kColumns),
                                     routed.route, kTopK));
}

TEST_F(OperationOverTokens, SumsRowsAndGradientsOfProbabilities) {
  const Routed routed;
  const auto input = bf16_rows(kRows, 9);
  const std::vector<float> blocks = reference::random_probs(kRows, 1, 10);
  COperation forward(example_operation("unpermute"));
  COperation backward(example_operation("unpermute_grad"));
  for (COperation* operation : {&forward, &backward}) {
    operation->give("input", {kRows, kColumns}, input);
    give_route(*operation, routed, false);
    operation->want("output", {kTokens, kColumns});
  }
  backward.give("dprobs_blocks", {kRows, 1}, blocks);
  backward.want("dprobs", {kTokens, kTopK});
  for (COperation* operation : {&forward, &backward}) {
    ASSERT_TRUE(is_ok(operation->run()));
    EXPECT_TRUE(matches(
        compare_bf16({"output", kColumns}, operation->read<uint16_t>("output"),
                     reference::unpermute(input, routed.route.row_map, kTokens, kTopK, kColumns))));
  }
  EXPECT_TRUE(matches(compare_f32({"dprobs", kTopK}, backward.read<float>("dprobs"),
                                  reference::unpermute_dprobs(blocks, routed.route.row_map, 1))));
}

TEST_F(OperationOverTokens, NeedsAsManyRowsAsARoutingMayNeed) {
  COperation operation(example_operation("unpermute"));
  const Routed routed;
  operation.give("input", {kRows - 16, kColumns}, bf16_rows(kRows - 16, 9));
  give_route(operation, routed, false);
  operation.want("output", {kTokens, kColumns});
  EXPECT_TRUE(is_error(operation.run(), MOEJIT_ERROR_TENSOR_MISMATCH, "permuted rows have 112",
                       "wanted at least 128", "37 tokens"));
}

// Rows come from a map, of which all bytes but 0 count; tensors of bool stand for bytes.
TEST_F(OperationOverTokens, RoutesAMapToRowsOfAnyNumber) {
  COperation route(R"({"operation": "route", "max_tokens": 64, "top_k": 4, "local_experts": 4,
      "splits_alignment": 1, "input": "routing_map"})");
  std::vector<uint8_t> map(kTokens * kExperts);
  for (size_t i = 0; i < map.size(); ++i)
    if (i % 3 == 0) map[i] = static_cast<uint8_t>(i % 255 + 1);
  const reference::Route wanted = reference::route_map(
      map, kTokens,
      {.experts = kExperts, .top_k = kExperts, .alignment = 1, .max_rows = kTokens * kExperts});
  route.give("routing_map", {kTokens, kExperts}, map);
  route.want("counts", {kExperts});
  route.want("offs", {kExperts + 1});
  route.want("row_map", {kTokens, kExperts});
  route.give("status", {1}, std::vector<uint32_t>{0});
  ASSERT_TRUE(is_ok(route.run()));
  EXPECT_EQ(route.read<int32_t>("counts"), wanted.counts);
  EXPECT_EQ(route.read<int32_t>("offs"), wanted.offs);
  EXPECT_EQ(route.read<int32_t>("row_map"), wanted.row_map);
  EXPECT_EQ(route.read<uint32_t>("status").front(), 0u);

  const int64_t rows = wanted.rows();
  ASSERT_LT(rows, kTokens * kExperts);
  COperation sum(R"({"operation": "unpermute", "max_tokens": 64, "top_k": 4, "local_experts": 4,
      "splits_alignment": 1, "columns": 256, "any_permuted_rows": true})");
  const auto input = bf16_rows(rows, 9);
  sum.give("input", {rows, kColumns}, input);
  sum.give("row_map", {kTokens, kExperts}, wanted.row_map);
  sum.want("output", {kTokens, kColumns});
  ASSERT_TRUE(is_ok(sum.run()));
  EXPECT_TRUE(matches(
      compare_bf16({"output", kColumns}, sum.read<uint16_t>("output"),
                   reference::unpermute(input, wanted.row_map, kTokens, kExperts, kColumns))));
}

}  // namespace
}  // namespace moejit::testing
