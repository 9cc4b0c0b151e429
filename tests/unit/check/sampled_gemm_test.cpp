// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/sampled_gemm.h"

#include <gtest/gtest.h>

namespace moejit::check {
namespace {

// Experts with 10, 0, 1 and 4 rows at 0, 16, 16 and 32.
const reference::Route kRoute{{10, 0, 1, 4}, {0, 16, 16, 32, 48}, {}, 0};

reference::QuantizedRows numbered_rows() {
  reference::QuantizedRows rows{48, 16, {}, {}};
  for (int64_t row = 0; row < rows.rows; ++row) {
    rows.q.insert(rows.q.end(), 16, static_cast<uint8_t>(row));
    rows.scale_inv.push_back(static_cast<float>(row));
  }
  return rows;
}

TEST(SampleGemm, TakesAllRealRowsWhereThatIsAffordable) {
  const GemmSample sample = sample_gemm(numbered_rows(), kRoute, 8, 15 * 16 * 8);
  EXPECT_EQ(sample.source_rows,
            (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 32, 33, 34, 35}));
  EXPECT_EQ(sample.route.counts, kRoute.counts);
  EXPECT_EQ(sample.route.offs, (std::vector<int32_t>{0, 10, 10, 11, 15}));
}

TEST(SampleGemm, KeepsTheFirstAndLastRowOfEveryExpert) {
  const GemmSample sample = sample_gemm(numbered_rows(), kRoute, 8, 0);
  EXPECT_EQ(sample.source_rows, (std::vector<int64_t>{0, 9, 16, 32, 35}));
}

TEST(SampleGemm, BringsTheDataOfTheRowsAlong) {
  const GemmSample sample = sample_gemm(numbered_rows(), kRoute, 8, 0);
  EXPECT_EQ(sample.rows.scale_inv, (std::vector<float>{0, 9, 16, 32, 35}));
  EXPECT_EQ(sample.rows.q[3 * 16], 32);
  EXPECT_EQ(gather_rows(std::vector<uint16_t>{1, 2, 3, 4, 5, 6}, 2, std::vector<int64_t>{2, 0}),
            (std::vector<uint16_t>{5, 6, 1, 2}));
}

}  // namespace
}  // namespace moejit::check
