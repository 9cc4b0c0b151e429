// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/decision/statistics.h"

#include "tests/unit/tune/infinity.h"

#include <cmath>
#include <gtest/gtest.h>
#include <vector>

namespace moejit::tune {
namespace {

TEST(MedianInterval, HasTheRanksOfPrintedTables) {
  // The table of the sign test for two sides and 5 %, as in textbooks: P(B < k) <= 2.5 %.
  const std::vector<int32_t> ranks = {0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5};
  for (std::size_t count = 0; count < ranks.size(); ++count)
    EXPECT_EQ(rank_of_bound(static_cast<int32_t>(count)), ranks[count]) << count << " values";
  EXPECT_EQ(rank_of_bound(25), 8);
  EXPECT_EQ(rank_of_bound(50), 18);
  EXPECT_EQ(rank_of_bound(100), 40);
}

TEST(MedianInterval, HasRanksForAsManyValuesAsARaceMayHave) {
  // By the normal distribution: 500 + 0.5 - 1.96 * sqrt(1000) / 2 = 469.5.
  EXPECT_EQ(rank_of_bound(1000), 469);
  // 5000 + 0.5 - 0.98 * 100 = 4902.5; 1 / 2^10000 is no double.
  EXPECT_EQ(rank_of_bound(10000), 4902);
}

TEST(MedianInterval, IsOpenForFewerThanSixValues) {
  EXPECT_EQ(median_interval({3, 1, 2, 5, 4}),
            (MedianInterval{.median = 3, .low = 0, .high = kInfinity}));
}

TEST(MedianInterval, ReachesFromTheLeastToTheLargestOfSixValues) {
  EXPECT_EQ(median_interval({6, 1, 5, 2, 4, 3}),
            (MedianInterval{.median = 3.5, .low = 1, .high = 6}));
}

TEST(MedianInterval, LeavesOutTheOutermostOfNineValues) {
  EXPECT_EQ(median_interval({9, 8, 7, 6, 5, 4, 3, 2, 1}),
            (MedianInterval{.median = 5, .low = 2, .high = 8}));
}

TEST(MedianInterval, IsOpenAroundZeroForNoValue) {
  EXPECT_EQ(median_interval({}), (MedianInterval{.median = 0, .low = 0, .high = kInfinity}));
}

TEST(Scatter, IsUnknownWithoutAStep) { EXPECT_EQ(Scatter().deviation(), kInfinity); }

TEST(Scatter, IsTheDeviationThatHasTheMedianStep) {
  Scatter scatter;
  scatter.add(0.9, 0.9 * std::exp(0.03));
  scatter.add(1.2 * std::exp(0.02), 1.2);
  scatter.add(1.0, 1.0);
  // Half of all steps are below 0.6745 * sqrt(2) deviations of one value.
  EXPECT_NEAR(scatter.deviation(), 0.02 / (0.6745 * std::sqrt(2.0)), 1e-6);
}

TEST(Scatter, DoesNotCountAWildStep) {
  Scatter scatter;
  for (int i = 0; i < 4; ++i) scatter.add(1.0, 1.01);
  const double calm = scatter.deviation();
  scatter.add(1.0, 9.0);
  EXPECT_EQ(scatter.deviation(), calm);
}

}  // namespace
}  // namespace moejit::tune
