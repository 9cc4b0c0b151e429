// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/end_scaled_gemm.h"

#include "runtime/reference/number_formats.h"

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
  EXPECT_EQ(end_scaled_gemm_sums(small(), kRoute, 2),
            (std::vector<float>{6, -2, 0, 0, 30, 5, 24, -2}));
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

TEST(EndScaledGemm, AddsUpEachChainOnTheTensorCoresAndChainsInFp32) {
  const std::vector<float> products = {256, 0.03125F, -256, 0, 3};
  EXPECT_EQ(one_result(products, 5), bf16_from_float(3.03125F));
  const std::vector<float> far = {256, 0x1p-6F, -256, 0, 3};  // 2^-6 is below 2^(8 - 13)
  EXPECT_EQ(one_result(far, 5), bf16_from_float(3));
  EXPECT_EQ(one_result(far, 3), bf16_from_float(3));
  EXPECT_EQ(one_result(far, 1), bf16_from_float(3.015625F));
  EXPECT_EQ(one_result({256, 1}, 2), bf16_from_float(256));
}

TEST(EndScaledGemm, MultipliesSumsWithScalesInTheirOrder) {
  constexpr auto kProduct = ScaleOrder::kProductOfScales;
  constexpr auto kRowFirst = ScaleOrder::kRowThenColumn;
  EXPECT_EQ(one_result({0x1p-9F}, 1, 0x1p100F, 0x1p30F, kRowFirst), bf16_from_float(0x1p121F));
  EXPECT_EQ(one_result({0x1p-9F}, 1, 0x1p100F, 0x1p30F, kProduct), bf16_from_float(INFINITY));
  EXPECT_EQ(one_result({0x1p8F}, 1, 0x1p-100F, 0x1p120F, kRowFirst), bf16_from_float(0x1p28F));
  EXPECT_EQ(one_result({0x1p8F}, 1, 0x1p120F, 0x1p-100F, kRowFirst), bf16_from_float(INFINITY));
  EXPECT_EQ(one_result({0x1p8F}, 1, 0x1p120F, 0x1p-100F, kProduct), bf16_from_float(0x1p28F));
}

TEST(EndScaledGemm, LeavesPadRowsZeroAndTakesEachRowsOwnExpert) {
  std::vector<uint16_t> wanted;
  for (const float value : {6.0F, -2.0F, 0.0F, 0.0F, 30.0F, 5.0F, 24.0F, -2.0F})
    wanted.push_back(bf16_from_float(value));
  wanted[2] = wanted[3] = 0;
  EXPECT_EQ(end_scaled_gemm(small(), kRoute, 2), wanted);
}

TEST(EndScaledGemm, TakesE5m2OperandsToo) {
  EndScaledOperands operands = small();
  operands.a_format = Fp8Format::kE5m2;
  operands.a[0] = 0x1p-16F;
  operands.b[0] = 0x1p10F;
  operands.a[1] = 0;
  EXPECT_EQ(end_scaled_gemm(operands, kRoute, 2)[0], bf16_from_float(0x1p-5F));
}

TEST(EndScaledGemm, KeepsMoreBitsOfBf16Products) {
  EndScaledOperands operands{.is_bf16 = true,
                             .rows = 1,
                             .columns = 1,
                             .depth = 3,
                             .a = {256, 0x1p-17F, -256},
                             .b = {1, 1, 1},
                             .a_scale = {1},
                             .b_scale = {1}};
  const Route route{.counts = {1}, .offs = {0, 1}, .row_map = {}};
  EXPECT_EQ(end_scaled_gemm(operands, route, 3)[0], bf16_from_float(0x1p-17F));
  operands.a[1] = 0x1p-18F;  // below 2^(8 - 25)
  EXPECT_EQ(end_scaled_gemm(operands, route, 3)[0], 0);
}

}  // namespace
}  // namespace moejit::reference
