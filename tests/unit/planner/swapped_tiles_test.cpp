// SPDX-License-Identifier: Apache-2.0
#include "compiler/launch.h"
#include "compiler/planner/candidates.h"
#include "compiler/planner/grouped_gemm.h"

#include <array>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

namespace moejit::compiler {
namespace {

TEST(SwappedTiles, HaveAsManyRowsAsTheLargestGroupUpTo128) {
  const GroupedGemmSpec problem{.local_experts = 2, .section_n = 256, .k = 64};
  for (const auto& [largest, rows] : {std::pair{1, 16},
                                      {16, 16},
                                      {17, 32},
                                      {32, 32},
                                      {33, 64},
                                      {64, 64},
                                      {65, 96},
                                      {96, 96},
                                      {97, 128},
                                      {128, 128},
                                      {5000, 128}}) {
    const GroupedGemmSpec spec = choose_swapped_tiles(problem, largest);
    EXPECT_TRUE(spec.is_swapped);
    EXPECT_EQ(spec.tile_rows, rows) << largest;
  }
}

// A stage has 128 bytes of each row, 16 KiB for 128 rows of B; beside the ring lies a tile of D.
TEST(SwappedTiles, FillSharedMemoryWithStages) {
  const GroupedGemmSpec problem{.local_experts = 2, .section_n = 256, .k = 64};
  for (const auto& [rows, stages] : {std::pair{16, 12}, {32, 10}, {64, 8}, {96, 7}, {128, 5}}) {
    const GroupedGemmSpec spec = choose_swapped_tiles(problem, rows);
    EXPECT_EQ(spec.stages, stages) << rows;
    EXPECT_LE(launch_shape(spec).shared_bytes, Target{}.shared_memory_bytes);
  }
}

// Factors of 128 rows take the room of the sixth.
TEST(SwappedTiles, HaveAStageMoreWithoutFactors) {
  const GroupedGemmSpec problem{.operands = DType::kBF16,
                                .scales = GemmScales::kNone,
                                .local_experts = 2,
                                .section_n = 256,
                                .k = 64};
  EXPECT_EQ(choose_swapped_tiles(problem, 128).stages, 6);
}

// Some groups have several times the mean, if there can be so many rows.
TEST(SwappedTiles, AreChosenForGroupsOfFourTimesTheMean) {
  const int64_t any = 4096;
  for (const auto& [rows, largest] : {std::pair{GroupRows{1, any}, 64},
                                      {{16, any}, 64},
                                      {{17, any}, 68},
                                      {{32, any}, 128},
                                      {{8, 24}, 24},
                                      {{32, 70}, 70}})
    EXPECT_EQ(usual_largest_group({}, rows), largest) << rows.mean << " " << rows.most;
}

TEST(SwappedTiles, LieInOneScaleBlock) {
  GroupedGemmSpec problem{.local_experts = 2, .sections = 2, .section_n = 384, .k = 64};
  const GroupedGemmSpec joined = choose_swapped_tiles(problem, 64);
  EXPECT_EQ(joined.sections, 1);
  EXPECT_EQ(joined.wide_tiles, 0);
  EXPECT_EQ(joined.narrow_tiles, 6);
  problem.section_n = 144;
  const GroupedGemmSpec apart = choose_swapped_tiles(problem, 64);
  EXPECT_EQ(apart.sections, 2);
  EXPECT_EQ(apart.narrow_tiles, 2);
  EXPECT_NE(tile_reasons(problem, apart).front().find("their rows are the m side of WGMMA"),
            std::string::npos);
}

// As fc2 of Qwen3-30B-A3B, 16 tiles of 128 columns an expert, for one token and for 64.
TEST(SwappedTiles, AreHalvedForTwoCtasAnSmWhereTheyAreFew) {
  const GroupedGemmSpec problem{.operands = DType::kBF16,
                                .scales = GemmScales::kNone,
                                .local_experts = 128,
                                .section_n = 2048,
                                .k = 768};
  const GroupedGemmSpec few = choose_spec(problem, {.mean = 1, .most = 1, .total = 8});
  EXPECT_EQ(few.ctas_per_sm, 2);
  EXPECT_EQ(few.narrow_tiles, 32);
  EXPECT_EQ(launch_shape(few).threads, 256);
  EXPECT_EQ(launch_shape(few).ctas_per_sm, 2);
  // 64 groups have rows, though no group has more than 8.
  EXPECT_EQ(choose_spec(problem, {.mean = 1, .most = 8, .total = 64}).ctas_per_sm, 1);
  const GroupRows many{.mean = 32, .most = 128, .total = 256};
  EXPECT_EQ(choose_spec(problem, many).tile_rows, 128);
  // 33 tiles, so that CTAs cannot share A.
  const GroupedGemmSpec shared = choose_spec({.operands = DType::kBF16,
                                              .scales = GemmScales::kNone,
                                              .local_experts = 8,
                                              .section_n = 4224,
                                              .k = 14336},
                                             many);
  EXPECT_EQ(shared.ctas_per_sm, 2);
  EXPECT_EQ(shared.tile_rows, 96);
  EXPECT_EQ(shared.stages, 4);
  EXPECT_EQ(choose_spec({.local_experts = 128, .section_n = 2048, .k = 768}, {1, 1, 8}).ctas_per_sm,
            1);
}

// 64 tokens have 512 choices. A rank of eight gets an eighth of them.
TEST(SwappedTiles, AreChosenForTheRowsOfALargestCall) {
  CallBounds bounds{.max_tokens = 64, .top_k = 8, .groups = 128, .max_permuted_rows = 512};
  const GroupRows all = group_rows(bounds);
  EXPECT_EQ(all.mean, 4);
  EXPECT_EQ(all.most, 64);
  EXPECT_EQ(all.total, 512);
  bounds.groups = 16;
  bounds.experts = 128;
  const GroupRows of_rank = group_rows(bounds);
  EXPECT_EQ(of_rank.mean, 4);
  EXPECT_EQ(of_rank.most, 64);
  EXPECT_EQ(of_rank.total, 64);
}

// As fc2 of Qwen3-30B-A3B with 8, 16, 32 and 64 tokens.
TEST(SwappedTiles, Have16RowsInBf16WhereGroupsAreSmall) {
  GroupedGemmSpec problem{.operands = DType::kBF16,
                          .scales = GemmScales::kNone,
                          .local_experts = 128,
                          .section_n = 2048,
                          .k = 768};
  const auto tile_rows = [&](const GroupRows& rows) {
    return choose_spec(problem, rows).tile_rows;
  };
  EXPECT_EQ(tile_rows({.mean = 1, .most = 8, .total = 64}), 16);
  EXPECT_EQ(tile_rows({.mean = 1, .most = 16, .total = 128}), 16);
  EXPECT_EQ(tile_rows({.mean = 2, .most = 32, .total = 256}), 16);
  EXPECT_EQ(tile_rows({.mean = 3, .most = 32, .total = 384}), 32);
  EXPECT_EQ(tile_rows({.mean = 2, .most = 33, .total = 256}), 64);
  problem.operands = DType::kF8E4M3;
  problem.scales = GemmScales::kRowBlock;
  EXPECT_EQ(tile_rows({.mean = 2, .most = 32, .total = 256}), 32);
}

// As Qwen3-30B-A3B.
TEST(SwappedTiles, ShareABetweenCtasInBf16FromAFewRowsOn) {
  const GroupRows few{.mean = 4, .most = 64, .total = 512},
      some{.mean = 8, .most = 128, .total = 1024};
  GroupedGemmSpec fc2{.operands = DType::kBF16,
                      .scales = GemmScales::kNone,
                      .local_experts = 128,
                      .section_n = 2048,
                      .k = 768};
  EXPECT_FALSE(choose_spec(fc2, few).shares_a);
  EXPECT_TRUE(choose_spec(fc2, some).shares_a);
  EXPECT_EQ(choose_spec(fc2, some).tile_rows, 64);
  EXPECT_EQ(choose_spec(fc2, {.mean = 16, .most = 256, .total = 2048}).tile_rows, 128);
  GroupedGemmSpec fc1 = fc2;
  fc1.epilogue = GemmEpilogue::kActivation;
  fc1.sections = 2;
  fc1.section_n = 768;
  EXPECT_TRUE(choose_spec(fc1, some).shares_a);
  EXPECT_EQ(choose_spec(fc1, some).tile_rows, 128);
  fc1.section_n = 2880;  // 45 tiles
  EXPECT_FALSE(choose_spec(fc1, some).shares_a);
  fc2.operands = DType::kF8E4M3;
  fc2.scales = GemmScales::kRowBlock;
  EXPECT_FALSE(choose_spec(fc2, some).shares_a);
}

// 8 rows of gate and the 8 of up behind them, eight times: 64 columns of 72, of which the last tile
// has 8. The last place in the tensor that a box may begin at ends with the rows of the last up.
TEST(GroupedGemmTensorMaps, HaveBoxesOfGateAndUpForGatedSwappedTiles) {
  GroupedGemmSpec problem{.operands = DType::kBF16,
                          .scales = GemmScales::kNone,
                          .epilogue = GemmEpilogue::kActivation,
                          .local_experts = 3,
                          .sections = 2,
                          .section_n = 72,
                          .k = 272};
  const GroupedGemmSpec spec = choose_swapped_tiles(problem, 64);
  EXPECT_EQ(spec.narrow_columns, 64);
  EXPECT_EQ(spec.narrow_tiles, 2);
  const TensorBox concat = grouped_gemm_tensor_maps(spec, 1000, {.b = "w"})[1].box;
  EXPECT_EQ(concat.box, (std::array{64, 8, 2, 8}));
  EXPECT_EQ(concat.strides_bytes, (std::array<int64_t, 3>{544, 72 * 544, 8 * 544}));
  EXPECT_EQ(concat.dims, (std::array<int64_t, 4>{272, 8, 2, (3 * 144 - 72) / 8}));
  problem.is_interleaved = true;
  const TensorBox alternating =
      grouped_gemm_tensor_maps(choose_swapped_tiles(problem, 64), 1000, {.b = "w"})[1].box;
  EXPECT_EQ(alternating.strides_bytes, (std::array<int64_t, 3>{2 * 544, 544, 16 * 544}));
  EXPECT_EQ(alternating.dims, (std::array<int64_t, 4>{272, 8, 2, 3 * 144 / 16}));
}

TEST(GroupedGemmTensorMaps, HaveSmallBoxesOfAForSwappedTilesAndNoneOfD) {
  const GroupedGemmSpec spec =
      choose_swapped_tiles({.local_experts = 3, .sections = 2, .section_n = 144, .k = 272}, 64);
  const auto maps = grouped_gemm_tensor_maps(spec, 1000, {.a = "x", .b = "w", .d = "y"});
  ASSERT_EQ(maps.size(), 2u);
  EXPECT_EQ(maps[0].role, "a_map");
  EXPECT_EQ(maps[0].box.box, (std::array{128, 16, 1, 0}));
  EXPECT_EQ(maps[1].role, "b_map");
  EXPECT_EQ(maps[1].box.box, (std::array{128, 128, 1, 0}));
  EXPECT_EQ(maps[1].box.dims, (std::array<int64_t, 4>{272, 3 * 288, 1}));
}

}  // namespace
}  // namespace moejit::compiler
