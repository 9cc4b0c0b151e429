// SPDX-License-Identifier: Apache-2.0
// How specs that were chosen for Hopper are made to fit other targets.

#include "compiler/planner/candidates.h"
#include "compiler/planner/grouped_gemm.h"

#include <gtest/gtest.h>

namespace moejit::compiler {
namespace {

const Target kLarge = parse_target("cuda:sm_100f").value();
const Target kSmall = parse_target("cuda:sm_120f").value();

GroupedGemmSpec gemm(DType operands, Major b_major = Major::kK) {
  const bool is_bf16 = operands == DType::kBF16;
  return choose_tiles({.operands = operands,
                       .scales = is_bf16 ? GemmScales::kNone : GemmScales::kRowBlock,
                       .b_major = b_major,
                       .local_experts = 8,
                       .section_n = 512,
                       .k = 1024});
}

TEST(FitTarget, HalvesColumnsOfWideTilesWithoutWgmma) {
  const GroupedGemmSpec gemms[] = {gemm(DType::kBF16), gemm(DType::kBF16, Major::kMn),
                                   gemm(DType::kF8E4M3)};
  for (const GroupedGemmSpec& hoppers : gemms) {
    const GroupedGemmSpec spec = fitted(hoppers, kLarge);
    EXPECT_TRUE(spec.has_column_halves);
    EXPECT_EQ(spec.narrow_columns, 128);
  }
}

// Scales of rows reach 64 rows of a part.
TEST(FitTarget, HalvesColumnsOfWeightGradientsWithoutScalesOfRows) {
  const auto has_halves = [](GradientScales scales) {
    const ContractionGroupedGemmSpec spec{
        .scales = scales, .local_experts = 8, .rows = 512, .n = 512};
    return fitted(spec, kLarge).has_column_halves;
  };
  for (const auto scales : {GradientScales::kNone, GradientScales::kTensor, GradientScales::kTile})
    EXPECT_TRUE(has_halves(scales)) << to_string(scales);
  for (const auto scales : {GradientScales::kRow, GradientScales::kRowColumn})
    EXPECT_FALSE(has_halves(scales)) << to_string(scales);
}

TEST(FitTarget, HalvesRowsWhereHalfOfTheColumnsIsNoBox) {
  const GroupedGemmSpec spec = fitted(gemm(DType::kBF16), kSmall);
  EXPECT_FALSE(spec.has_column_halves);
  EXPECT_EQ(spec.narrow_columns, 64);
}

// Where warps trade no registers, operands unpacked from FP8 leave none for the sums of 128 rows.
TEST(FitTarget, GivesSwappedTilesFewerRowsWhereRegistersAreFew) {
  const auto tile_rows = [](DType operands, const Target& target) {
    return fitted(choose_swapped_tiles(gemm(operands), 128), target).tile_rows;
  };
  EXPECT_EQ(tile_rows(DType::kF8E4M3, kSmall), 64);
  EXPECT_EQ(tile_rows(DType::kF8E4M3, kLarge), 128);
  EXPECT_EQ(tile_rows(DType::kBF16, kSmall), 128);
}

// Where integers convert, too, packed codes have fewer still.
TEST(FitTarget, GivesPackedTilesFewerRowsWhereIntegersConvert) {
  GroupedGemmSpec packed = choose_swapped_tiles(gemm(DType::kF8E4M3), 128);
  packed.b_packed = PackedFormat::kMxfp4;
  EXPECT_EQ(fitted(packed, parse_target("cuda:sm_80").value()).tile_rows, 32);
  EXPECT_EQ(fitted(packed, kSmall).tile_rows, 64);
  packed.b_packed = PackedFormat::kInt4;
  packed.operands = DType::kBF16;
  packed.scales = GemmScales::kSection;
  EXPECT_EQ(fitted(packed, parse_target("cuda:sm_80").value()).tile_rows, 64);
}

TEST(FitTarget, LeavesHoppersSpecsAsTheyAre) {
  EXPECT_EQ(fitted(gemm(DType::kBF16), Target{}), gemm(DType::kBF16));
}

}  // namespace
}  // namespace moejit::compiler
