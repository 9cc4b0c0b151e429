// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/grouped_gemm.h"

#include "compiler/launch.h"
#include "tests/unit/planner/planner_layers.h"

#include <gtest/gtest.h>
#include <string>
#include <variant>
#include <vector>

namespace moejit::compiler {

void PrintTo(const ColumnTiles& tiles, std::ostream* out) {
  *out << tiles.wide << " wide, " << tiles.narrow << " narrow";
}

namespace {

TEST(ColumnTiles, FitMultiplesOf64From256On) {
  EXPECT_EQ(choose_column_tiles(384), (ColumnTiles{2, 0}));
  EXPECT_EQ(choose_column_tiles(256), (ColumnTiles{0, 2}));
  EXPECT_EQ(choose_column_tiles(320), (ColumnTiles{1, 1}));
  EXPECT_EQ(choose_column_tiles(4096), (ColumnTiles{20, 2}));
  EXPECT_EQ(choose_column_tiles(7168), (ColumnTiles{36, 2}));
  EXPECT_EQ(choose_column_tiles(2880), (ColumnTiles{15, 0}));
  EXPECT_EQ(choose_column_tiles(768), (ColumnTiles{4, 0}));
  for (int64_t columns = 256; columns <= 8192; columns += 64) {
    const ColumnTiles tiles = choose_column_tiles(columns);
    EXPECT_EQ(tiles.wide * 192 + tiles.narrow * 128, columns);
    EXPECT_LT(tiles.narrow, 3) << columns;
  }
}

TEST(ColumnTiles, WasteTheFewestColumnsOfOtherWidths) {
  EXPECT_EQ(choose_column_tiles(8), (ColumnTiles{0, 1}));
  EXPECT_EQ(choose_column_tiles(64), (ColumnTiles{0, 1}));
  EXPECT_EQ(choose_column_tiles(128), (ColumnTiles{0, 1}));
  EXPECT_EQ(choose_column_tiles(136), (ColumnTiles{1, 0}));
  EXPECT_EQ(choose_column_tiles(200), (ColumnTiles{0, 2}));
  EXPECT_EQ(choose_column_tiles(1440), (ColumnTiles{7, 1}));  // 1472
}

// 384 columns are two wide tiles or three narrow ones.
TEST(ColumnTiles, AreFewWhereTheWasteIsTheSame) {
  EXPECT_EQ(choose_column_tiles(380), (ColumnTiles{2, 0}));
  EXPECT_EQ(choose_column_tiles(508), (ColumnTiles{2, 1}));  // not four narrow ones
}

TEST(GroupedGemmTiles, MakeOneOfSectionsThatNoScaleBlockStraddles) {
  const GroupedGemmSpec problem{.local_experts = 2, .sections = 2, .section_n = 384, .k = 64};
  const GroupedGemmSpec spec = choose_tiles(problem);
  EXPECT_EQ(spec.sections, 1);
  EXPECT_EQ(spec.section_n, 768);
  EXPECT_EQ(spec.wide_tiles, 4);
  EXPECT_EQ(spec.narrow_tiles, 0);
  EXPECT_EQ(tile_reasons(problem, spec).front(),
            "the 2 sections are one of 768 columns: no scale block lies in two of them");
}

TEST(GroupedGemmTiles, KeepSectionsApartWhoseScaleBlocksRestart) {
  const GroupedGemmSpec problem{.local_experts = 2, .sections = 2, .section_n = 144, .k = 64};
  const GroupedGemmSpec spec = choose_tiles(problem);
  EXPECT_EQ(spec.sections, 2);
  EXPECT_EQ(spec.section_n, 144);
  EXPECT_EQ(spec.wide_tiles, 1);
  EXPECT_NE(tile_reasons(problem, spec).front().find("for 144 columns leave 48 unused"),
            std::string::npos);
}

TEST(GroupedGemmTiles, HaveGateAndUpSideBySideWhereTheEpilogueJoinsThem) {
  const GroupedGemmSpec problem{.epilogue = GemmEpilogue::kActivationQuantize,
                                .local_experts = 2,
                                .sections = 2,
                                .section_n = 144,
                                .k = 64};
  const GroupedGemmSpec spec = choose_tiles(problem);
  EXPECT_EQ(tile_sections(spec), 2);
  EXPECT_EQ(spec.sections, 2);
  EXPECT_EQ(spec.narrow_columns, 128);
  EXPECT_EQ(spec.narrow_tiles, 2);
  EXPECT_EQ(spec.wide_tiles, 0);
  EXPECT_NE(tile_reasons(problem, spec).front().find("112 columns of the last one are unused"),
            std::string::npos);
}

TEST(GroupedGemmTiles, HaveOneWidthWhereTheContractionIsShort) {
  const GroupedGemmSpec problem{.local_experts = 128, .section_n = 2048, .k = 768};
  EXPECT_EQ(choose_tiles(problem).wide_tiles, 11);
  EXPECT_EQ(choose_tiles(problem).narrow_tiles, 0);
  GroupedGemmSpec longer = problem, wasteful = problem, unscaled = problem;
  longer.k = 1040;
  EXPECT_EQ(choose_tiles(longer).narrow_tiles, 1);
  wasteful.section_n = 320;  // 64 columns of 384 would be spare
  EXPECT_EQ(choose_tiles(wasteful).narrow_tiles, 1);
  unscaled.scales = GemmScales::kTensor;
  EXPECT_EQ(choose_tiles(unscaled).narrow_tiles, 1);
}

TEST(GroupedGemmTiles, AreTheWidestForLongContractionsOfManyRows) {
  const GroupedGemmSpec problem{.local_experts = 8, .section_n = 2048, .k = 7168};
  const auto widths = [](const GroupedGemmSpec& spec, int64_t mean) {
    const GroupedGemmSpec chosen = choose_spec(spec, {.mean = mean, .most = 8 * mean});
    return std::pair(chosen.wide_columns, chosen.wide_tiles);
  };
  EXPECT_EQ(widths(problem, 4096), std::pair(256, 8));
  EXPECT_EQ(widths(problem, 1024), std::pair(256, 8));
  EXPECT_EQ(widths(problem, 512), std::pair(192, 10));
  GroupedGemmSpec shorter = problem, ragged = problem, shared = problem, end_scaled = problem;
  shorter.k = 7152;
  ragged.section_n = 2176;
  shared.blocks_per_promotion = 2;
  end_scaled.scales = GemmScales::kTensor;
  for (const GroupedGemmSpec& spec : {shorter, ragged, shared, end_scaled})
    EXPECT_EQ(widths(spec, 4096).first, 192) << to_string(spec);
  const GroupedGemmSpec chosen = choose_spec(problem, {.mean = 4096, .most = 8192});
  EXPECT_EQ(chosen.stages, 4);
  EXPECT_LE(launch_shape(chosen).shared_bytes, Target{}.shared_memory_bytes);
  EXPECT_NE(tile_reasons(problem, chosen)[1].find("multiplied in two halves"), std::string::npos);
  for (int32_t n = 256; n <= 1280; n += 8)  // narrow ones cover what is left
    EXPECT_EQ(with_widest_tiles({.section_n = n}).narrow_tiles, (n % 256 + 127) / 128) << n;
}

TEST(GroupedGemmTiles, ShareBInClustersWhereItIsLargeAndGroupsAre) {
  const GroupedGemmSpec problem{.local_experts = 8, .section_n = 6144, .k = 4096};  // 24 MiB
  const auto ctas = [](const GroupedGemmSpec& spec, int64_t mean) {
    return choose_spec(spec, {.mean = mean, .most = 8 * mean}).cluster_ctas;
  };
  EXPECT_EQ(ctas(problem, 2048), 2);
  EXPECT_EQ(ctas(problem, 1024), 1);
  GroupedGemmSpec shorter = problem, smaller = problem, end_scaled = problem, gated = problem,
                  bf16 = problem;
  shorter.section_n = 8192;
  shorter.k = 4080;
  smaller.section_n = 6136;
  end_scaled.scales = GemmScales::kRowColumn;
  bf16.operands = DType::kBF16;
  bf16.scales = GemmScales::kNone;
  gated.epilogue = GemmEpilogue::kActivationQuantize;
  gated.sections = 2;
  gated.section_n = 3072;
  EXPECT_EQ(ctas(shorter, 4096), 1);
  EXPECT_EQ(ctas(smaller, 4096), 1);
  EXPECT_EQ(ctas(end_scaled, 4096), 2);
  EXPECT_EQ(ctas(bf16, 4096), 1);
  EXPECT_EQ(ctas(gated, 4096), 2);
  const auto reasons = tile_reasons(problem, choose_spec(problem, {.mean = 4096, .most = 8192}));
  EXPECT_NE(reasons[1].find("read each tile of B from L2 once for both"), std::string::npos);
}

TEST(GroupedGemmTensorMaps, DescribeWhatTheEpilogueStores) {
  GroupedGemmSpec spec{.epilogue = GemmEpilogue::kActivationQuantize,
                       .local_experts = 3,
                       .sections = 2,
                       .section_n = 144,
                       .k = 272,
                       .narrow_tiles = 2};
  const auto maps = grouped_gemm_tensor_maps(spec, 1000, {.a = "x", .b = "w", .q = "q"});
  ASSERT_EQ(maps.size(), 3u);
  EXPECT_EQ(maps[1].box.box[1], 128);  // of one section
  const TensorMapPlan q{"q_map",
                        "q",
                        {.dtype = DType::kF8E4M3,
                         .rank = 2,
                         .dims = {144, 1000, 1},
                         .strides_bytes = {144, 0},
                         .box = {128, 64, 1},
                         .is_swizzled = true,
                         .call_dim = 1}};
  EXPECT_EQ(maps[2], q);
  spec.epilogue = GemmEpilogue::kStoreAndActivationQuantize;
  const auto both = grouped_gemm_tensor_maps(spec, 1000, {.d = "y", .q = "q"});
  ASSERT_EQ(both.size(), 4u);
  EXPECT_EQ(both[2].tensor, "y");
  EXPECT_EQ(both[3], q);
}

TEST(GroupedGemmTensorMaps, DescribeTheMatricesInBoxesOfTiles) {
  const GroupedGemmSpec spec{
      .local_experts = 3, .sections = 2, .section_n = 144, .k = 272, .wide_tiles = 1};
  const auto maps = grouped_gemm_tensor_maps(spec, 1000, {.a = "x", .b = "w", .d = "y"});
  const TensorMapPlan a{"a_map",
                        "x",
                        {.dtype = DType::kF8E4M3,
                         .rank = 2,
                         .dims = {272, 1000, 1},
                         .strides_bytes = {272, 0},
                         .box = {128, 128, 1},
                         .is_swizzled = true,
                         .call_dim = 1}};
  TensorMapPlan b = a;
  b.role = "b_map";
  b.tensor = "w";
  b.box.dims = {272, 3 * 288, 1};
  b.box.call_dim = -1;  // weights
  b.box.box[1] = spec.wide_columns;
  const TensorMapPlan d{"d_map",
                        "y",
                        {.dtype = DType::kBF16,
                         .rank = 3,
                         .dims = {144, 2, 1000},
                         .strides_bytes = {288, 576},
                         .box = {64, 1, 64},
                         .is_swizzled = true,
                         .call_dim = 2}};
  EXPECT_EQ(maps, (std::vector{a, b, d}));
}

// The other maps keep 256 bytes.
TEST(GroupedGemmTensorMaps, BringTheBOfSwappedTilesIntoL2By128Bytes) {
  const GroupedGemmSpec problem{
      .operands = DType::kBF16, .local_experts = 3, .section_n = 256, .k = 256};
  for (const int64_t rows : {16, 64, 128}) {
    const auto maps = grouped_gemm_tensor_maps(choose_swapped_tiles(problem, rows), 1000, {});
    EXPECT_EQ(maps[0].box.l2_promotion, 256) << rows;
    EXPECT_EQ(maps[1].box.l2_promotion, 128) << rows;
  }
}

TEST(GroupedGemmTensorMaps, BringBIntoL2By128BytesWhereGroupsInBf16HaveTwoTiles) {
  GroupedGemmSpec problem{.operands = DType::kBF16, .local_experts = 3, .section_n = 256, .k = 256};
  const auto promotion = [&](int64_t mean_rows) {
    const auto maps = grouped_gemm_tensor_maps(choose_tiles(problem), 1000, {}, mean_rows);
    EXPECT_EQ(maps[0].box.l2_promotion, 256);
    EXPECT_EQ(maps[2].box.l2_promotion, 256);
    return maps[1].box.l2_promotion;
  };
  EXPECT_EQ(promotion(64), 256);
  EXPECT_EQ(promotion(128), 128);
  EXPECT_EQ(promotion(256), 128);
  EXPECT_EQ(promotion(512), 256);
  problem.b_major = Major::kMn;
  EXPECT_EQ(promotion(128), 256);
  problem = {.local_experts = 3, .section_n = 256, .k = 256};
  EXPECT_EQ(promotion(128), 256);
}

TEST(GroupedGemmTensorMaps, TakeHalfAsManyElementsOfTwiceTheBytes) {
  const GroupedGemmSpec spec{
      .operands = DType::kBF16, .local_experts = 3, .section_n = 64, .k = 256};
  const TensorBox box = grouped_gemm_tensor_maps(spec, 10, {}).front().box;
  EXPECT_EQ(box.dtype, DType::kBF16);
  EXPECT_EQ(box.strides_bytes[0], 512);
  EXPECT_EQ(box.box[0], 64);
}

TEST(PlanGroupedGemm, GivesTheKernelThatALayerHas) {
  Layer layer = dsv3_like_layer();
  layer.scale_sharing_k = 2;
  const Plan plan = plan_layer(layer, {}).value();
  const KernelPlan& fc1 = *find_kernel(plan, "gemm_fc1");
  const KernelPlan alone = plan_grouped_gemm({.local_experts = layer.local_experts,
                                              .sections = 2,
                                              .section_n = layer.intermediate,
                                              .k = layer.hidden,
                                              .blocks_per_promotion = 2},
                                             layer.max_permuted_rows)
                               .value();
  EXPECT_EQ(alone.spec, fc1.spec);
  EXPECT_EQ(alone.launch, fc1.launch);
  // A layer's first reason is why it has such tiles.
  EXPECT_EQ(alone.reasons, std::vector<std::string>(fc1.reasons.begin() + 1, fc1.reasons.end()));
  ASSERT_EQ(alone.tensor_maps.size(), fc1.tensor_maps.size());
  for (size_t i = 0; i < alone.tensor_maps.size(); ++i) {
    EXPECT_EQ(alone.tensor_maps[i].role, fc1.tensor_maps[i].role);
    EXPECT_EQ(alone.tensor_maps[i].box, fc1.tensor_maps[i].box);
  }
}

TEST(PlanGroupedGemm, CountsAllRows) {
  const KernelPlan kernel =
      plan_grouped_gemm({.local_experts = 3, .section_n = 256, .k = 512}, 300).value();
  EXPECT_EQ(kernel.multiply_adds, 300 * 256 * 512);
  // A and its scales, B and its scales, D.
  EXPECT_EQ(kernel.min_bytes, 300 * (512 + 16) + 3 * (256 * 512 + 4 * 2 * 4) + 300 * 256 * 2);
  // Two full row tiles and one for each group that may have one that is not; two column tiles.
  EXPECT_EQ(kernel.launch.max_ctas, (2 + 3) * 2);
}

// As fc2 of Qwen3-30B-A3B: of rows at hand follow both what B brings into L2, and CTAs of an SM.
TEST(PlanGroupedGemm, KnowsTheRowsOfItsGroups) {
  const auto kernel = [](int64_t rows) {
    return plan_grouped_gemm({.operands = DType::kBF16,
                              .scales = GemmScales::kNone,
                              .local_experts = 128,
                              .section_n = 2048,
                              .k = 768},
                             rows)
        .value();
  };
  EXPECT_EQ(kernel(128 * 64).tensor_maps[1].box.l2_promotion, 256);
  EXPECT_EQ(kernel(128 * 128).tensor_maps[1].box.l2_promotion, 128);
  EXPECT_EQ(std::get<GroupedGemmSpec>(kernel(8).spec).ctas_per_sm, 2);
  EXPECT_EQ(std::get<GroupedGemmSpec>(kernel(64).spec).ctas_per_sm, 1);
}

// Operands and scales that go together.
GroupedGemmSpec end_scaled(GemmScales scales) {
  return {.operands = scales == GemmScales::kNone ? DType::kBF16 : DType::kF8E4M3,
          .scales = scales,
          .local_experts = 3,
          .sections = 2,
          .section_n = 144,
          .k = 272};
}

TEST(EndScaledGemm, HasOneSectionSinceNoScaleBlockRestarts) {
  for (const GemmScales scales : {GemmScales::kTensor, GemmScales::kRowColumn, GemmScales::kNone}) {
    const GroupedGemmSpec problem = end_scaled(scales);
    for (const GroupedGemmSpec& spec : {choose_tiles(problem), choose_swapped_tiles(problem, 64)}) {
      EXPECT_EQ(spec.sections, 1);
      EXPECT_EQ(spec.section_n, 288);
    }
  }
}

TEST(EndScaledGemm, AddsPartialSumsOf128ProductsUnlessToldToBeFast) {
  GroupedGemmSpec problem = end_scaled(GemmScales::kTensor);
  problem.blocks_per_promotion = 2;  // of scales that blocks share, and here are none
  EXPECT_FALSE(is_one_chain(choose_tiles(problem)));
  EXPECT_EQ(choose_tiles(problem).blocks_per_promotion, 1);
  EXPECT_EQ(choose_swapped_tiles(problem, 16).blocks_per_promotion, 1);
  EXPECT_NE(tile_reasons(problem, choose_tiles(problem))[2].find("sums of 128 of k"),
            std::string::npos);
  problem.accumulation = GemmAccumulation::kFast;
  EXPECT_TRUE(is_one_chain(choose_tiles(problem)));
  EXPECT_TRUE(is_one_chain(choose_tiles(end_scaled(GemmScales::kNone))));
}

TEST(EndScaledGemm, CountsAndBindsTheScalesThatThereAre) {
  const auto planned = [](GemmScales scales) {
    return plan_grouped_gemm(end_scaled(scales), 300).value();
  };
  const KernelPlan tensor = planned(GemmScales::kTensor);
  const KernelPlan column = planned(GemmScales::kRowColumn);
  const KernelPlan none = planned(GemmScales::kNone);
  constexpr int64_t kE4m3Bytes = 300 * 272 + 3 * 288 * 272 + 2 * 300 * 288;
  EXPECT_EQ(tensor.min_bytes, kE4m3Bytes + 4 * (3 + 3));
  EXPECT_EQ(column.min_bytes, kE4m3Bytes + 4 * (300 + 3 * 288));
  EXPECT_EQ(none.min_bytes, 2 * (300 * 272 + 3 * 288 * 272 + 300 * 288));
  EXPECT_EQ(tensor.arguments.front().role, "a_scale_inv");
  EXPECT_EQ(none.arguments.front().role, "d");
}

TEST(EndScaledGemm, HasSwappedTilesForFewRows) {
  for (const GemmScales scales : {GemmScales::kTensor, GemmScales::kRowColumn, GemmScales::kNone}) {
    const KernelPlan kernel = plan_grouped_gemm(end_scaled(scales), 90).value();
    EXPECT_TRUE(std::get<GroupedGemmSpec>(kernel.spec).is_swapped);
  }
}

struct Refused {
  GroupedGemmSpec problem;
  std::string message;
};

class RefusedGemm : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedGemm, IsSaidToHavePartsThatDoNotGoTogether) {
  const auto planned = plan_grouped_gemm(GetParam().problem, 300);
  ASSERT_FALSE(planned.has_value());
  EXPECT_EQ(planned.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(planned.error().message, GetParam().message);
  EXPECT_FALSE(planned.error().hint.empty());
}

// One after the other: g++ 12 warns falsely where records with formulas stand in braced lists.
std::vector<Refused> refused_problems() {
  std::vector<Refused> all;
  const auto add = [&](const GroupedGemmSpec& problem, const char* message) {
    all.push_back({problem, std::string("grouped GEMM: ") + message});
  };
  add({.operands = DType::kBF16, .scales = GemmScales::kRowColumn},
      "scales \"row_column\" with operands in BF16");
  add({.operands = DType::kBF16,
       .scales = GemmScales::kTensor,
       .accumulation = GemmAccumulation::kFast},
      "accumulation \"fast\" with operands in BF16");
  add({.operands = DType::kF8E4M3, .scales = GemmScales::kNone},
      "scales \"none\" with operands in F8_E4M3");
  add({.scales = GemmScales::kTensor, .epilogue = GemmEpilogue::kActivationQuantize},
      "epilogue \"activation_quantize\" with the scales tensor");
  add({.operands = DType::kBF16,
       .scales = GemmScales::kNone,
       .epilogue = GemmEpilogue::kStoreAndActivationQuantize},
      "epilogue \"store_and_activation_quantize\" with the scales none");
  add({.b_major = Major::kMn}, "b_major \"mn\" with operands in F8_E4M3");
  add({.accumulation = GemmAccumulation::kFast}, "accumulation \"fast\" with the scales row_block");
  add({.operands = DType::kBF16,
       .scales = GemmScales::kNone,
       .accumulation = GemmAccumulation::kFast},
      "accumulation \"fast\" with operands in BF16");
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, RefusedGemm, ::testing::ValuesIn(refused_problems()));

}  // namespace
}  // namespace moejit::compiler
