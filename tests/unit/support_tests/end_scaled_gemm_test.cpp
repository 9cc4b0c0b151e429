// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/end_scaled_gemm.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/sum_error.h"

#include <cmath>
#include <gtest/gtest.h>

namespace moejit::reference {
namespace {

// Two experts of two columns; one row, a pad row, two rows.
EndScaledOperands small() {
  return {.rows = 4,
          .columns = 2,
          .depth = 2,
          .a = {1, 2, 100, 100, 3, -1, 0.5, 0},
          .b = {1, 1, -2, 0, 4, 2, 1, 8},
          .a_scale = {2, 100, 1, 4},
          .b_scale = {1, 0.5, 3, -1}};
}
const Route kRoute{.counts = {1, 2}, .offs = {0, 2, 4}, .row_map = {}};

TEST(EndScaledGemm, ScalesTheSumByRowAndColumn) {
  EXPECT_EQ(end_scaled_gemm_exact(small(), kRoute, 2).value,
            (std::vector<double>{6, -2, 0, 0, 30, 5, 24, -2}));
}

TEST(EndScaledGemm, BoundsTheRoundingToBf16AndLittleMoreWhereSumsAreExactInFp32) {
  EndScaledOperands operands = small();
  operands.is_bf16 = true;
  const GemmExact exact = end_scaled_gemm_exact(operands, kRoute, 2);
  EXPECT_GE(exact.bound[0], 6 * 0x1p-8);
  EXPECT_LE(exact.bound[0], 6 * 0x1p-8 * 1.01);
  EXPECT_EQ(exact.bound[2], 0.0);         // of a pad row
  EXPECT_GE(exact.bound[7], 2 * 0x1p-8);  // of a negative scale
}

// One row, one column, products `a`.
uint16_t one_result(const std::vector<float>& a, std::int64_t chain, float a_scale = 1.0F,
                    float b_scale = 1.0F, ScaleOrder order = ScaleOrder::kProductOfScales) {
  const auto depth = static_cast<std::int64_t>(a.size());
  return end_scaled_gemm({.order = order,
                          .rows = 1,
                          .columns = 1,
                          .depth = depth,
                          .a = a,
                          .b = std::vector<float>(a.size(), 1.0F),
                          .a_scale = {a_scale},
                          .b_scale = {b_scale}},
                         {.counts = {1}, .offs = {0, 1}, .row_map = {}}, chain)
      .front();
}

TEST(EndScaledGemm, RoundsToFp32BehindEachChainAndToBf16AtTheEnd) {
  const std::vector<float> products = {0x1p24F, 0, 1, 1, -0x1p24F, 0, 3};
  EXPECT_EQ(one_result(products, 2), bf16_from_float(5));
  EXPECT_EQ(one_result(products, 1), bf16_from_float(3));  // 2^24 + 1 is 2^24, twice
  EXPECT_EQ(one_result(products, 3), bf16_from_float(4));  // so it is once
  EXPECT_EQ(one_result(products, 7), bf16_from_float(5));
  EXPECT_EQ(one_result({256, 1}, 2), bf16_from_float(256));
}

TEST(EndScaledGemm, MultipliesSumsWithScalesInTheirOrder) {
  constexpr auto kProduct = ScaleOrder::kProductOfScales;
  constexpr auto kRowFirst = ScaleOrder::kRowThenColumn;
  EXPECT_EQ(one_result({0x1p-9F}, 1, 0x1p100F, 0x1p30F, kRowFirst), bf16_from_float(0x1p121F));
  EXPECT_EQ(one_result({0x1p-9F}, 1, 0x1p100F, 0x1p30F, kProduct), bf16_from_float(INFINITY));
  EXPECT_EQ(one_result({0x1p17F}, 1, 0x1p-100F, 0x1p120F, kRowFirst), bf16_from_float(0x1p37F));
  EXPECT_EQ(one_result({0x1p17F}, 1, 0x1p120F, 0x1p-100F, kRowFirst), bf16_from_float(INFINITY));
  EXPECT_EQ(one_result({0x1p17F}, 1, 0x1p120F, 0x1p-100F, kProduct), bf16_from_float(0x1p37F));
}

TEST(EndScaledGemm, LeavesPadRowsZeroAndTakesEachRowsOwnExpert) {
  std::vector<uint16_t> wanted;
  for (const float value : {6.0F, -2.0F, 0.0F, 0.0F, 30.0F, 5.0F, 24.0F, -2.0F})
    wanted.push_back(bf16_from_float(value));
  wanted[2] = wanted[3] = 0;
  EXPECT_EQ(end_scaled_gemm(small(), kRoute, 2), wanted);
}

TEST(EndScaledGemm, BoundsGrowWithTheLengthOfAChain) {
  const std::vector<double> ones(512, 1.0);
  // 33 terms of which the largest is the first group's sum, 32.
  EXPECT_EQ(partial_sum_error(ones.data(), ones.data(), 32), 33 * 0x1p-13);
  EXPECT_GT(partial_sum_error(ones.data(), ones.data(), 64), 33 * 0x1p-13 * 33);
  // The first group's loses 2^-13 for the sum so far, and six deviations for 32 products.
  EXPECT_NEAR(likely_sum_error(ones.data(), ones.data(), 32),
              (1.0 + 6.0 * std::sqrt(32.0 / 3.0)) * 0x1p-13, 0x1p-40);
  EXPECT_LT(likely_sum_error(ones.data(), ones.data(), 512),
            partial_sum_error(ones.data(), ones.data(), 512));
  EXPECT_EQ(bf16_sum_error(ones.data(), ones.data(), 16), 17 * 0x1p-22);
  EXPECT_EQ(fp32_sum_error(512.0, 512), 512.0 * 512 * 0x1p-23);
}

}  // namespace
}  // namespace moejit::reference
