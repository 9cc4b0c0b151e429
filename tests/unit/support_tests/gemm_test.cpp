// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/gemm.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "tests/unit/support_tests/one_expert.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

namespace moejit::reference {
namespace {

TEST(GroupedGemm, MultipliesByTheWeightsOfTheRowsExpert) {
  // Two experts with one output column each: 2 and -3. Rows: 1 (expert 0), 1.5 (expert 1).
  const QuantizedRows rows{2, 1, {0x38, 0x3C}, {1.0F, 1.0F}};
  const QuantizedWeights weights{2, 1, 1, 1, {0x40, 0xC4}, {1.0F, 0.5F}};
  const Route routed{.counts = {1, 1}, .offs = {0, 1, 2}};

  const std::vector<std::uint16_t> out = grouped_gemm(rows, weights, routed);

  EXPECT_EQ(float_from_bf16(out[0]), 2.0F);
  EXPECT_EQ(float_from_bf16(out[1]), -2.25F);
}

TEST(GroupedGemm, ScalesEveryBlockOf128OnItsOwn) {
  // 144 = 128 + 16 ones times ones: 128 * 2 * 4 + 16 * 0.5 * 8.
  const QuantizedRows rows{1, 144, std::vector<std::uint8_t>(144, 0x38), {2.0F, 0.5F}};
  const QuantizedWeights weights{1, 1, 144, 1, std::vector<std::uint8_t>(144, 0x38), {4.0F, 8.0F}};
  EXPECT_EQ(float_from_bf16(grouped_gemm(rows, weights, one_expert(1))[0]), 1088.0F);
}

TEST(GroupedGemm, CutsProductsOffBesideLargeOnesOfTheirBlockAndNotBesideOthers) {
  // The first block gives -448 * 448, the second 448 * 448 and what is lost beside that, 2^-18.
  std::vector<std::uint8_t> a(256, 0), b(256, 0);
  a[0] = 0xFE;
  b[0] = 0x7E;
  a[128] = b[128] = 0x7E;
  a[129] = b[129] = 0x01;
  QuantizedRows rows{1, 256, a, {1.0F, 1.0F}};
  const QuantizedWeights weights{1, 1, 256, 1, b, {1.0F, 1.0F}};
  EXPECT_EQ(grouped_gemm(rows, weights, one_expert(1))[0], 0x0000);
  EXPECT_EQ(grouped_gemm_in_fp64(rows, weights, one_expert(1))[0], 0x1p-18);

  std::swap(rows.q[128], rows.q[130]);  // 448 * 0
  rows.scale_inv[0] = 0x1p-30F;
  EXPECT_EQ(grouped_gemm_sums(rows, weights, one_expert(1))[0], 0x1p-18F - 200704 * 0x1p-30F);
}

// The two blocks cancel in one chain if they share their scales, which leaves the third.
TEST(GroupedGemm, AddsUpTwoBlocksBeforeItScalesThem) {
  std::vector<std::uint8_t> a(384, 0), b(384, 0);
  a[0] = 0xFE;
  b[0] = 0x7E;
  a[128] = b[128] = 0x7E;
  a[129] = b[129] = 0x01;
  a[256] = b[256] = 0x01;  // a third block, on its own
  const QuantizedRows rows{1, 384, a, {2.0F, 2.0F, 8.0F}};
  const QuantizedWeights weights{1, 1, 384, 1, b, {4.0F, 4.0F, 4.0F}};

  const auto out = grouped_gemm(rows, weights, one_expert(1), 2);

  EXPECT_EQ(float_from_bf16(out[0]), 0x1p-18F * 32);
}

// 1 + 2^-23 times 1 + 2^-23 is rounded before it meets the partial sum.
TEST(GroupedGemm, RoundsTheProductOfTheScales) {
  const float scale = std::nextafter(1.0F, 2.0F);
  std::vector<std::uint8_t> a(256, 0), b(256, 0);
  a[0] = b[0] = a[128] = 0x38;
  b[128] = 0xB8;  // the second block takes away 1 + 2^-22 again
  const QuantizedRows rows{1, 256, a, {scale, 1.0F + 0x1p-22F}};
  const QuantizedWeights weights{1, 1, 256, 1, b, {scale, 1.0F}};
  EXPECT_EQ(grouped_gemm(rows, weights, one_expert(1))[0], 0x0000);
  EXPECT_EQ(grouped_gemm_in_fp64(rows, weights, one_expert(1))[0], 0x1p-46);
}

TEST(GroupedGemm, UsesTheScaleRowOfTheUpHalf) {
  // Two sections of one row: each has its own scale.
  const QuantizedRows rows{1, 1, {0x38}, {1.0F}};
  const QuantizedWeights weights{1, 2, 1, 2, {0x38, 0x38}, {2.0F, 4.0F}};
  const std::vector<std::uint16_t> out = grouped_gemm(rows, weights, one_expert(1));
  EXPECT_EQ(float_from_bf16(out[0]), 2.0F);
  EXPECT_EQ(float_from_bf16(out[1]), 4.0F);
}

TEST(GroupedGemm, LeavesPadRowsZeroEvenWithNanWeights) {
  const QuantizedRows rows{2, 1, {0x38, 0x00}, {1.0F, 0.0F}};
  const QuantizedWeights weights{1, 1, 1, 1, {0x7F}, {1.0F}};
  const std::vector<std::uint16_t> out = grouped_gemm(rows, weights, one_expert(1, 1));
  EXPECT_TRUE(std::isnan(float_from_bf16(out[0])));
  EXPECT_EQ(out[1], 0);
}

// Normally distributed e4m3 numbers.
std::vector<std::uint8_t> normal_numbers(std::size_t count, std::uint64_t seed, bool is_positive) {
  const RandomStream random(seed, 4);
  std::vector<std::uint8_t> numbers(count);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const double value = 64.0 * random.normal(i);
    numbers[i] = encode_e4m3(static_cast<float>(is_positive ? std::fabs(value) : value));
  }
  return numbers;
}

// The relative error, in the 2-norm over many results, of a contraction of 7168 whose accumulator
// is emptied into fp32 after every `blocks` blocks of 128.
double promoted_error(std::int64_t blocks, bool is_positive) {
  constexpr std::int64_t kRows = 32, kColumns = 64, kDepth = 7168;
  const std::vector<float> ones(kRows * kColumns * kDepth / kBlock, 1.0F);
  const QuantizedRows rows{kRows, kDepth, normal_numbers(kRows * kDepth, 5, is_positive), ones};
  const QuantizedWeights weights{
      1, kColumns, kDepth, 1, normal_numbers(kColumns * kDepth, 6, is_positive), ones};
  const auto sums = grouped_gemm_sums(rows, weights, one_expert(kRows), blocks);
  const auto exact = grouped_gemm_in_fp64(rows, weights, one_expert(kRows));
  double squared_error = 0.0, squared_norm = 0.0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    squared_error += (sums[i] - exact[i]) * (sums[i] - exact[i]);
    squared_norm += exact[i] * exact[i];
  }
  return std::sqrt(squared_error / squared_norm);
}

// The figures of docs/recipes.md.
TEST(Promotion, LosesLittleMoreAfterTwoBlocksThanAfterOne) {
  EXPECT_NEAR(promoted_error(1, false), 1.2e-4, 0.1e-4);
  EXPECT_NEAR(promoted_error(2, false), 2.1e-4, 0.1e-4);
  EXPECT_NEAR(promoted_error(1, true), 6.2e-4, 0.1e-4);
  EXPECT_NEAR(promoted_error(2, true), 2.1e-3, 0.1e-3);
}

TEST(GroupedGemm, LosesNearlyEveryProductBesideALargeOne) {
  // One product of 2^13, beside which the unit is 1: the others, 15/16 each, are cut off to 0.
  std::vector<std::uint8_t> a(128, 0x3F), b(128, 0x30);  // 1.875, 0.5
  a[0] = 0x70;                                           // 128
  b[0] = 0x68;                                           // 64
  const QuantizedRows rows{1, 128, a, {1.0F}};
  const QuantizedWeights weights{1, 1, 128, 1, b, {1.0F}};
  EXPECT_EQ(grouped_gemm_sums(rows, weights, one_expert(1))[0], 8192.0F);
  EXPECT_EQ(grouped_gemm_in_fp64(rows, weights, one_expert(1))[0], 8192.0 + 127.0 * 0.9375);
}

}  // namespace
}  // namespace moejit::reference
