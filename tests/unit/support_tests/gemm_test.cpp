// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/gemm.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

namespace moejit::reference {
namespace {

// One expert that owns `rows` rows, `pads` pad rows behind them.
Route one_expert(std::int32_t rows, std::int32_t pads = 0) {
  return {.counts = {rows}, .offs = {0, rows + pads}};
}

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

TEST(GroupedGemm, RoundsThePartialSumToFp32AndTheResultOnceToBf16) {
  // The first block gives -448 * 448. The second gives 448 * 448 + 2^-9 * 2^-9, which is not an
  // fp32 number: rounding it before it is added leaves 0, rounding only the sum would leave 2^-18.
  std::vector<std::uint8_t> a(256, 0), b(256, 0);
  a[0] = 0xFE;
  b[0] = 0x7E;
  a[128] = b[128] = 0x7E;
  a[129] = b[129] = 0x01;
  const QuantizedRows rows{1, 256, a, {1.0F, 1.0F}};
  const QuantizedWeights weights{1, 1, 256, 1, b, {1.0F, 1.0F}};

  EXPECT_EQ(grouped_gemm(rows, weights, one_expert(1))[0], 0x0000);
  EXPECT_EQ(grouped_gemm_exact(rows, weights, one_expert(1)).value[0], 0x1p-18);
}

// The same numbers in blocks that share their scales: one partial sum, 2^-18, and nothing is lost.
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

  EXPECT_EQ(float_from_bf16(out[0]), 0x1p-18F * 8 + 0x1p-18F * 32);
  EXPECT_EQ(grouped_gemm(rows, weights, one_expert(1), 1)[0], bf16_from_float(0x1p-18F * 32));
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
  EXPECT_EQ(grouped_gemm_exact(rows, weights, one_expert(1)).value[0], 0x1p-46);
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

TEST(GroupedGemmExact, SumsMagnitudesWithTheirScales) {
  const QuantizedRows rows{1, 2, {0x38, 0xB8}, {2.0F}};
  const QuantizedWeights weights{1, 1, 2, 1, {0x40, 0x38}, {0.5F}};
  const GemmExact exact = grouped_gemm_exact(rows, weights, one_expert(1));
  EXPECT_EQ(exact.value[0], 1.0);
  EXPECT_EQ(exact.magnitude[0], 3.0);
}

// An accumulator as bad as Hopper's is said to be: groups of 32 products are aligned to the largest
// term, and every term is cut off 13 bits below it.
double truncating_partial(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0.0;
  for (std::size_t first = 0; first < a.size(); first += 32) {
    double largest = std::fabs(sum);
    for (std::size_t k = first; k < first + 32; ++k) {
      largest = std::max(largest, std::fabs(a[k] * b[k]));
    }
    if (largest == 0.0) continue;
    const double unit = std::ldexp(1.0, std::ilogb(largest) - 13);
    double next = std::trunc(sum / unit) * unit;
    for (std::size_t k = first; k < first + 32; ++k) next += std::trunc(a[k] * b[k] / unit) * unit;
    sum = next;
  }
  return sum;
}

TEST(GroupedGemmExact, BoundHoldsForATruncatingAccumulatorAndIsUseful) {
  const std::int64_t depth = 2048;
  std::vector<std::uint8_t> a(depth), b(depth);
  std::uint32_t state = 1;
  const auto next_code = [&] {
    state = state * 1664525U + 1013904223U;
    return static_cast<std::uint8_t>((state >> 31 << 7) | (0x20U + (state >> 8) % 0x28U));
  };
  for (std::int64_t trial = 0; trial < 50; ++trial) {
    for (std::int64_t k = 0; k < depth; ++k) {
      a[k] = next_code();
      b[k] = next_code();
    }
    const std::vector<float> ones(depth / kBlock, 1.0F);
    const QuantizedRows rows{1, depth, a, ones};
    const QuantizedWeights weights{1, 1, depth, 1, b, ones};
    const GemmExact exact = grouped_gemm_exact(rows, weights, one_expert(1));

    float sum = 0.0F;
    for (std::int64_t block = 0; block < depth / kBlock; ++block) {
      std::vector<double> x, y;
      for (std::int64_t k = block * kBlock; k < (block + 1) * kBlock; ++k) {
        x.push_back(decode_e4m3(a[k]));
        y.push_back(decode_e4m3(b[k]));
      }
      sum += static_cast<float>(truncating_partial(x, y));
    }
    const double result = float_from_bf16(bf16_from_float(sum));
    EXPECT_LE(std::fabs(result - exact.value[0]), exact.bound[0]);
    // A bound that accepts a wrong result is worth nothing.
    EXPECT_LT(exact.bound[0], 0.01 * exact.magnitude[0] + 0x1p-7 * std::fabs(exact.value[0]));
  }
}

// Normally distributed e4m3 numbers to choose from.
std::vector<double> normal_numbers(bool is_positive) {
  const RandomStream random(3, 4);
  std::vector<double> numbers(1 << 14);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const double value = 64.0 * random.normal(i);
    numbers[i] =
        decode_e4m3(encode_e4m3(static_cast<float>(is_positive ? std::fabs(value) : value)));
  }
  return numbers;
}

// The relative error, in the 2-norm over many results, of a contraction of 7168 on such an
// accumulator that is emptied into fp32 after every `blocks` blocks of 128.
double promoted_error(std::int64_t blocks, bool is_positive) {
  constexpr int kTrials = 2000;
  constexpr std::size_t kDepth = 7168;
  const std::vector<double> numbers = normal_numbers(is_positive);
  const RandomStream choice(5, 6);
  const std::size_t length = static_cast<std::size_t>(blocks) * 128;
  std::vector<double> a(length), b(length);
  double squared_error = 0.0, squared_norm = 0.0;
  for (std::uint64_t place = 0; place < kTrials * kDepth;) {
    float sum = 0.0F;
    double exact = 0.0;
    for (std::size_t first = 0; first < kDepth; first += length) {
      for (std::size_t k = 0; k < length; ++k, ++place) {
        const std::uint64_t bits = choice.bits(place);
        a[k] = numbers[bits % numbers.size()];
        b[k] = numbers[(bits >> 32) % numbers.size()];
        exact += a[k] * b[k];
      }
      sum += static_cast<float>(truncating_partial(a, b));
    }
    squared_error += (sum - exact) * (sum - exact);
    squared_norm += exact * exact;
  }
  return std::sqrt(squared_error / squared_norm);
}

// The figures of docs/recipes.md.
TEST(Promotion, LosesLittleMoreAfterTwoBlocksThanAfterOne) {
  EXPECT_NEAR(promoted_error(1, false), 1.2e-4, 0.1e-4);
  EXPECT_NEAR(promoted_error(2, false), 2.1e-4, 0.1e-4);
  EXPECT_NEAR(promoted_error(1, true), 6.0e-4, 0.1e-4);
  EXPECT_NEAR(promoted_error(2, true), 2.1e-3, 0.1e-3);
}

TEST(GroupedGemmExact, BoundHoldsWhereATruncatingAccumulatorLosesNearlyEveryTerm) {
  // One product of 2^13: the accumulator's unit is 1, and the other products, 15/16 each, are cut
  // off to 0. The exact sum is 127 * 15/16 larger.
  std::vector<std::uint8_t> a(128, 0x3F), b(128, 0x30);  // 1.875, 0.5
  a[0] = 0x70;                                           // 128
  b[0] = 0x68;                                           // 64
  const QuantizedRows rows{1, 128, a, {1.0F}};
  const QuantizedWeights weights{1, 1, 128, 1, b, {1.0F}};
  std::vector<double> x, y;
  for (std::size_t k = 0; k < a.size(); ++k) {
    x.push_back(decode_e4m3(a[k]));
    y.push_back(decode_e4m3(b[k]));
  }
  ASSERT_EQ(truncating_partial(x, y), 8192.0);

  const GemmExact exact = grouped_gemm_exact(rows, weights, one_expert(1));
  EXPECT_EQ(exact.value[0], 8192.0 + 127.0 * 0.9375);
  EXPECT_LE(exact.value[0] - 8192.0, exact.bound[0]);
  EXPECT_LT(exact.bound[0], 2.0 * (exact.value[0] - 8192.0));
}

TEST(GroupedGemmExact, BoundOfFp32SumsIsFarInsideThatOfTheTensorCores) {
  const std::vector<std::uint8_t> ones(256, 0x38);
  const QuantizedRows rows{1, 256, ones, {1.0F, 1.0F}};
  const QuantizedWeights weights{1, 1, 256, 1, ones, {1.0F, 1.0F}};
  for (const std::int64_t blocks : {1, 2}) {
    const GemmExact exact = grouped_gemm_exact(rows, weights, one_expert(1), blocks);
    const double rounding = 0x1p-8 * 256.0;
    EXPECT_GT(exact.fp32_bound[0], rounding);
    EXPECT_LT(exact.fp32_bound[0] - rounding, 0.05 * (exact.bound[0] - rounding));
  }
}

TEST(GroupedGemmExact, BoundAcceptsTheReferenceItself) {
  const QuantizedRows rows{1, 3, {0x39, 0x41, 0xC3}, {3.0F}};
  const QuantizedWeights weights{1, 1, 3, 1, {0x3B, 0x35, 0x2D}, {0.7F}};
  const GemmExact exact = grouped_gemm_exact(rows, weights, one_expert(1));
  const double got = float_from_bf16(grouped_gemm(rows, weights, one_expert(1))[0]);
  EXPECT_LE(std::fabs(got - exact.value[0]), exact.bound[0]);
}

}  // namespace
}  // namespace moejit::reference
