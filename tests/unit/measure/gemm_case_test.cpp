// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/gemm_case.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace moejit::measure {
namespace {

TEST(GemmGroups, DivideColumnsInSteps) {
  const GemmGroups groups = make_groups(
      {.operation = GemmOperation::kContractionGroupedGemm, .groups = 2, .columns_per_group = 130});
  EXPECT_EQ(groups.counts, (std::vector<int32_t>{130, 130}));
  EXPECT_EQ(groups.offs, (std::vector<int32_t>{0, 256, 512}));
}

TEST(GemmGroups, AreOfEqualSizeAndAligned) {
  const GemmGroups groups =
      make_groups({.groups = 3, .rows_per_group = 100, .splits_alignment = 16});
  EXPECT_EQ(groups.counts, (std::vector<int32_t>{100, 100, 100}));
  EXPECT_EQ(groups.offs, (std::vector<int32_t>{0, 112, 224, 336}));
  EXPECT_EQ(groups.real_rows(), 300);
  EXPECT_EQ(groups.rows(), 336);
}

TEST(GemmGroups, DifferByUpTo30PercentWhereRagged) {
  const GemmCase gemm{
      .groups = 200, .rows_per_group = 1000, .is_ragged = true, .splits_alignment = 1};
  const GemmGroups groups = make_groups(gemm);
  EXPECT_EQ(groups.counts, make_groups(gemm).counts);
  const auto [least, most] = std::ranges::minmax(groups.counts);
  EXPECT_GE(least, 700);
  EXPECT_LT(least, 720);
  EXPECT_GT(most, 1280);
  EXPECT_LE(most, 1300);
  EXPECT_EQ(groups.real_rows(), groups.rows());
}

}  // namespace
}  // namespace moejit::measure
