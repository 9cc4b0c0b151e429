// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"

#include <gtest/gtest.h>

namespace moejit::compiler {
namespace {

const Layer kLayerOfThreeExperts{.local_experts = 3, .top_k = 4};

TEST(ChainWork, CountsBytesAndScalesOfWeightsTwiceWhereColwiseIsWritten) {
  TileChainSpec tiles{.sections = 2, .section_rows = 144, .columns = 272};
  const int64_t elements = 3 * 2 * 144 * 272, scales = 3 * 2 * 2 * 3;
  EXPECT_EQ(count_work({.spec = tiles, .bounds = call_bounds(kLayerOfThreeExperts)}, {}).min_bytes,
            3 * elements + 4 * scales);
  tiles.writes_colwise = true;
  EXPECT_EQ(count_work({.spec = tiles, .bounds = call_bounds(kLayerOfThreeExperts)}, {}).min_bytes,
            4 * elements + 8 * scales);
}

TEST(GroupedGemmWork, CountsTheWeightsOfExpertsThatHaveRows) {
  GroupedGemmSpec gemm{.local_experts = 32, .section_n = 512, .k = 256};
  gemm.scales = GemmScales::kNone;
  const int64_t matrix = 512 * 256 * size_bytes(gemm.operands);
  const auto bytes = [&](CallRows rows) { return count_work({.spec = gemm}, rows).min_bytes; };
  const int64_t of_rows = bytes({.routed = 40, .padded = 64, .routed_experts = 0});
  EXPECT_EQ(bytes({.routed = 40, .padded = 64, .routed_experts = 17}), of_rows + 17 * matrix);
  // A plan does not know the routing: 40 rows can reach all experts, and 8 no more than 8.
  EXPECT_EQ(bytes({.routed = 40, .padded = 64}), of_rows + 32 * matrix);
  EXPECT_EQ(
      bytes({.routed = 8, .padded = 64}) - bytes({.routed = 8, .padded = 64, .routed_experts = 0}),
      8 * matrix);
}

// The largest descriptions have more than 2^63.
TEST(GroupedGemmWork, CountsAtMostAsManyProductsAsAnIntegerHolds) {
  const GroupedGemmSpec gemm{.local_experts = 1, .sections = 2, .section_n = 65536, .k = 65536};
  const ContractionGroupedGemmSpec wgrad{
      .local_experts = 1, .rows = 131072, .sections = 2, .section_rows = 65536, .n = 65536};
  const int64_t few = 1000, products = few * 2 * 65536 * 65536;
  for (const KernelSpec& spec : {KernelSpec(gemm), KernelSpec(wgrad)}) {
    EXPECT_EQ(count_work({.spec = spec}, {.routed = few}).multiply_adds, products);
    EXPECT_EQ(count_work({.spec = spec}, {.routed = INT32_MAX}).multiply_adds, INT64_MAX);
  }
}

TEST(ChainWork, CountsTheBlocksOfRoutedRowsAndTheSumOfEveryChoice) {
  const CallRows rows{.tokens = 10, .routed = 31, .padded = 48};
  RowChainSpec unpermute{
      .load = LoadStage::kCombinedRows, .quantize = QuantizeStage::kNone, .columns = 272};
  const int64_t rows_alone =
      count_work({.spec = unpermute, .bounds = call_bounds(kLayerOfThreeExperts)}, rows).min_bytes;
  unpermute.store = StoreStage::kRowsAndProbs;
  unpermute.dprobs_columns = 5;
  EXPECT_EQ(
      count_work({.spec = unpermute, .bounds = call_bounds(kLayerOfThreeExperts)}, rows).min_bytes,
      rows_alone + 4 * (31 * 5 + 10 * 4));
}

TEST(ChainWork, ReadsNoTokenThatPermuteGivesNoRow) {
  const CallRows rows{.tokens = 10, .routed = 31, .padded = 48, .routed_tokens = 6};
  RowChainSpec permute{.load = LoadStage::kQuantizedRows,
                       .quantize = QuantizeStage::kKeep,
                       .store = StoreStage::kPermuted,
                       .columns = 272};
  const int64_t row = 272 + 4 * 3, choices = 10 * 4;
  const int64_t written = 48 * (row + 4) + 2 * 4 * choices;
  EXPECT_EQ(
      count_work({.spec = permute, .bounds = call_bounds(kLayerOfThreeExperts)}, rows).min_bytes,
      6 * row + written);
  permute.load = LoadStage::kRows;
  permute.quantize = QuantizeStage::k1x128;
  EXPECT_EQ(
      count_work({.spec = permute, .bounds = call_bounds(kLayerOfThreeExperts)}, rows).min_bytes,
      6 * 2 * 272 + written);
  permute.store = StoreStage::kRowsAndPermuted;
  EXPECT_EQ(
      count_work({.spec = permute, .bounds = call_bounds(kLayerOfThreeExperts)}, rows).min_bytes,
      10 * (2 * 272 + row) + written);
}

// 31 rows fill one block of 128 tokens in part.
TEST(ColumnCastWork, ReadsRowsOfBf16AndWritesAScaleForEachColumn) {
  const CallRows rows{.tokens = 10, .routed = 31, .padded = 48, .routed_tokens = 6};
  const auto bytes = [&](const auto& spec) {
    return count_work({.spec = spec, .bounds = call_bounds(kLayerOfThreeExperts)}, rows).min_bytes;
  };
  ColumnCastSpec cast{.columns = 272};
  const int64_t written = 272 * (31 + 4);
  EXPECT_EQ(bytes(cast), 31 * 2 * 272 + written);
  cast.source = RowSource::kGathered;
  EXPECT_EQ(bytes(cast), 6 * 2 * 272 + 4 * 31 + written);
  const GatedGradientSpec tiles{.columns = 272, .stores_rows = false, .tells_dprobs = false};
  GatedGradientSpec casts = tiles;
  casts.casts_columns = true;
  EXPECT_EQ(bytes(casts) - bytes(tiles), 3 * 4 * (272 - 3));
}

TEST(WholeRowWork, CountsOneScaleOfARow) {
  const CallRows rows{.tokens = 10, .routed = 31, .padded = 48, .routed_tokens = 6};
  const auto bytes = [&](const auto& spec) {
    return count_work({.spec = spec, .bounds = call_bounds(kLayerOfThreeExperts)}, rows).min_bytes;
  };
  RowChainSpec chain{.quantize = QuantizeStage::kRow, .columns = 272};
  EXPECT_EQ(bytes(chain), 10 * (2 * 272 + 272 + 4));
  chain.load = LoadStage::kMatrixRows;
  chain.local_experts = 3;
  chain.sections = 2;
  chain.section_rows = 16;
  EXPECT_EQ(bytes(chain), 96 * (2 * 272 + 272 + 4));
  const RowChainSpec gradient{.load = LoadStage::kGatedGradientRows,
                              .transform = TransformStage::kActivationBackward,
                              .quantize = QuantizeStage::kRow,
                              .store = StoreStage::kGroupedGatedRows,
                              .columns = 272};
  EXPECT_EQ(bytes(gradient), 31 * (3 * 2 * 272 + 4) + 48 * (2 * 272 + 4 + 4 * 3));
}

// 31 rows lie in one tile of 128.
TEST(GatedGradientWork, ReadsRowsOfBf16InBothPassesAndMagnitudesInTheSecond) {
  const CallRows rows{.tokens = 10, .routed = 31, .padded = 48, .routed_tokens = 6};
  const auto bytes = [&](const auto& spec) {
    return count_work({.spec = spec, .bounds = call_bounds(kLayerOfThreeExperts)}, rows).min_bytes;
  };
  GatedGradientSpec spec{
      .local_experts = 3, .columns = 272, .casts_columns = true, .pass = GradientPass::kAmax};
  const int64_t read = 31 * (3 * 2 * 272 + 4), row_amax = 31 * 4 * 3;
  EXPECT_EQ(bytes(spec), read + row_amax + 3 * 2 * 272);
  spec.stores_rows = false;
  EXPECT_EQ(bytes(spec), read + 3 * 2 * 272);
  spec.transposes_gradient = false;
  EXPECT_EQ(bytes(spec), read + 2 * 272);
  spec.pass = GradientPass::kCast;
  const int64_t dprobs = 48 * 4 * 3, operand = 272 * (31 + 4 * 3);
  EXPECT_EQ(bytes(spec), read + dprobs + operand);
  spec.stores_rows = spec.transposes_gradient = true;
  EXPECT_EQ(bytes(spec), read + row_amax + 48 * (2 * 272 + 4) + dprobs + 3 * operand);
  GroupColumnsSpec scales{.local_experts = 3, .columns = 272, .has_amax_rows = true};
  EXPECT_EQ(bytes(scales), 272 * (2 + 4 * 3));
}

TEST(GroupColumnsWork, ReadsRowsOfBf16InBothPasses) {
  const CallRows rows{.tokens = 10, .routed = 31, .padded = 48, .routed_tokens = 6};
  const auto bytes = [&](const auto& spec) {
    return count_work({.spec = spec, .bounds = call_bounds(kLayerOfThreeExperts)}, rows).min_bytes;
  };
  GroupColumnsSpec spec{.local_experts = 3, .columns = 272};
  EXPECT_EQ(bytes(spec), 272 * (2 * 31 + 4 * 3));
  spec.pass = ColumnPass::kCast;
  EXPECT_EQ(bytes(spec), 272 * (2 * 31 + 31 + 4 * 3));
  spec.source = RowSource::kGathered;
  EXPECT_EQ(bytes(spec), 272 * (2 * 6 + 31 + 4 * 3) + 4 * 31);
  spec.source = RowSource::kInOrder;
  spec.section_rows = 16;
  EXPECT_EQ(bytes(spec), 272 * (3 * 48 + 4 * 3));
}

TEST(ChainWork, CountsIdsAndProbabilitiesInTheDTypesOfTheSpec) {
  const CallRows rows{.tokens = 10, .routed = 31, .padded = 48, .routed_tokens = 6};
  const int64_t choices = 10 * 4;
  const auto bytes = [&](const auto& spec) {
    return count_work({.spec = spec, .bounds = call_bounds(kLayerOfThreeExperts)}, rows).min_bytes;
  };
  RouteSpec route{.local_experts = 3, .top_k = 4};
  EXPECT_EQ(bytes(route), (4 + 4) * choices + 8 * 3);
  route.topk_ids = DType::kI64;
  EXPECT_EQ(bytes(route), (8 + 4) * choices + 8 * 3);

  EXPECT_EQ(bytes(RouteMapSpec{.local_experts = 3, .top_k = 4}), 3 * 10 + 4 * choices + 8 * 3);

  // A permuted row's probability and a block of its gradient are fp32 either way.
  RowChainSpec permute{.load = LoadStage::kQuantizedRows,
                       .quantize = QuantizeStage::kKeep,
                       .store = StoreStage::kPermuted,
                       .columns = 272,
                       .probs = DType::kBF16};
  const int64_t row = 272 + 4 * 3;
  EXPECT_EQ(bytes(permute), 6 * row + 48 * (row + 4) + (4 + 2) * choices);
  permute.load = LoadStage::kTwoLevelRows;
  const int64_t packed = 136 + 8 * 3;
  EXPECT_EQ(bytes(permute), 6 * packed + 48 * (packed + 4) + (4 + 2) * choices);
  RowChainSpec unpermute{.load = LoadStage::kCombinedRows,
                         .quantize = QuantizeStage::kNone,
                         .store = StoreStage::kRowsAndProbs,
                         .columns = 272,
                         .dprobs_columns = 5,
                         .probs = DType::kBF16};
  EXPECT_EQ(bytes(unpermute), 2 * 272 * (31 + 10) + 4 * choices + 4 * 31 * 5 + 2 * choices);
  UnpermuteDprobsSpec dprobs{.top_k = 4, .dprobs_columns = 5};
  EXPECT_EQ(bytes(dprobs), 4 * 31 * 5 + (4 + 4) * choices);
  dprobs.probs = DType::kBF16;
  EXPECT_EQ(bytes(dprobs), 4 * 31 * 5 + (4 + 2) * choices);
  SharedChoicesSpec join{.rank_experts = 3, .top_k = 4, .shared = 2};
  EXPECT_EQ(bytes(join), (4 + 4) * choices + 10 * 8 * (4 + 2));
  join.has_gate = true;
  join.topk_ids = DType::kI64;
  join.probs = DType::kBF16;
  EXPECT_EQ(bytes(join), (8 + 2) * choices + 10 * 2 + 10 * 8 * (4 + 2));
  SharedDprobsSpec part{.top_k = 4, .shared = 2};
  EXPECT_EQ(bytes(part), (4 + 4) * choices);
  part.has_gate = true;
  EXPECT_EQ(bytes(part), (4 + 4) * choices + 10 * (4 * 2 + 4));
}

TEST(ChainWork, CountsOnlyWhatRowsHaveBesideThem) {
  const CallRows rows{.tokens = 10, .routed = 31, .padded = 48, .routed_tokens = 6};
  const auto bytes = [&](const RowChainSpec& spec) {
    return count_work({.spec = spec, .bounds = call_bounds(kLayerOfThreeExperts)}, rows).min_bytes;
  };
  const int64_t row = 272 + 4 * 3, choices = 10 * 4;
  RowChainSpec permute{.load = LoadStage::kQuantizedRows,
                       .quantize = QuantizeStage::kKeep,
                       .store = StoreStage::kPermuted,
                       .columns = 272,
                       .moves_probs = false};
  EXPECT_EQ(bytes(permute), 6 * row + 48 * row + 4 * choices);
  permute.tells_tokens = true;
  EXPECT_EQ(bytes(permute), 6 * row + 48 * row + 4 * choices + 4 * 31);
  RowChainSpec unpermute{.load = LoadStage::kCombinedRows,
                         .quantize = QuantizeStage::kNone,
                         .store = StoreStage::kRowsAndProbs,
                         .columns = 272,
                         .dprobs_columns = 5};
  const int64_t without_bias = bytes(unpermute);
  unpermute.adds_bias_dprobs = true;
  EXPECT_EQ(bytes(unpermute), without_bias + 4 * 31);
}

}  // namespace
}  // namespace moejit::compiler
