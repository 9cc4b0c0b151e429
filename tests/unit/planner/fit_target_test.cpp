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

TEST(FitTarget, HalvesColumnsOfWideBf16TilesWithoutWgmma) {
  for (const Major major : {Major::kK, Major::kMn}) {
    const GroupedGemmSpec spec = fitted(gemm(DType::kBF16, major), kLarge);
    EXPECT_TRUE(spec.has_column_halves);
    EXPECT_EQ(spec.narrow_columns, 128);
  }
  const ContractionGroupedGemmSpec wgrad{
      .scales = GradientScales::kNone, .local_experts = 8, .rows = 512, .n = 512};
  EXPECT_TRUE(fitted(wgrad, kLarge).has_column_halves);
}

TEST(FitTarget, HalvesRowsWhereHalfOfTheColumnsIsNoBox) {
  const GroupedGemmSpec spec = fitted(gemm(DType::kBF16), kSmall);
  EXPECT_FALSE(spec.has_column_halves);
  EXPECT_EQ(spec.narrow_columns, 64);
}

TEST(FitTarget, HalvesRowsWherePartialSumsMeetScalesOfRows) {
  EXPECT_FALSE(fitted(gemm(DType::kF8E4M3), kLarge).has_column_halves);
}

TEST(FitTarget, LeavesHoppersSpecsAsTheyAre) {
  EXPECT_EQ(fitted(gemm(DType::kBF16), Target{}), gemm(DType::kBF16));
}

}  // namespace
}  // namespace moejit::compiler
