// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/quantize.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "tests/unit/support_tests/special_floats.h"

#include <cmath>
#include <gtest/gtest.h>

namespace moejit::reference {
namespace {

std::vector<std::uint16_t> bf16_zeros(std::int64_t count) {
  return std::vector<std::uint16_t>(count, 0);
}

TEST(Quantize1x128, ScalesEachBlockByItsOwnAmaxAndThePartialOneToo) {
  std::vector<std::uint16_t> values = bf16_zeros(144);
  values[0] = bf16_from_float(448.0F);
  values[1] = bf16_from_float(-1.0F);
  values[128] = bf16_from_float(1.0F);
  values[143] = bf16_from_float(0.5F);

  const QuantizedRows result = quantize_1x128(values, 1, 144, 0.0F);

  EXPECT_EQ(result.scale_inv, (std::vector<float>{1.0F, 0x1p-8F}));
  EXPECT_EQ(result.q[0], 0x7E);
  EXPECT_EQ(result.q[1], 0xB8);
  EXPECT_EQ(result.q[128], 0x78);  // 1 * 2^8 = 256
  EXPECT_EQ(result.q[143], 0x70);
}

TEST(Quantize1x128, ZeroRowNextToATinyRowKeepsEachItsScale) {
  std::vector<std::uint16_t> values = bf16_zeros(2 * 16);
  values[16] = bf16_from_float(0x1p-40F);

  const QuantizedRows result = quantize_1x128(values, 2, 16);

  // 2^-40 lies below eps = 1e-10 (2^-33.2): both rows use the scale of eps.
  EXPECT_EQ(result.scale_inv, (std::vector<float>{0x1p-42F, 0x1p-42F}));
  EXPECT_EQ(result.q[0], 0x00);
  EXPECT_EQ(decode_e4m3(result.q[16]), 4.0F);
}

TEST(Quantize1x128, PassesOverNanAndSaturatesInf) {
  std::vector<std::uint16_t> values = bf16_zeros(3 * 16);
  values[0] = bf16_from_float(kNan);
  values[1] = bf16_from_float(2.0F);
  values[16] = bf16_from_float(-kInf);
  values[17] = bf16_from_float(2.0F);
  values[32] = bf16_from_float(kNan);

  const QuantizedRows result = quantize_1x128(values, 3, 16, 0.0F);

  EXPECT_EQ(result.scale_inv, (std::vector<float>{0x1p-7F, 1.0F, 1.0F}));
  EXPECT_EQ(result.q[0], 0x7F);
  EXPECT_EQ(result.q[1], 0x78);
  EXPECT_EQ(result.q[16], 0xFE);
  EXPECT_EQ(result.q[17], 0x40);
  EXPECT_EQ(result.q[32], 0x7F);
}

TEST(Quantize1x128, KeepsNegativeZero) {
  std::vector<std::uint16_t> values = bf16_zeros(16);
  values[3] = 0x8000;
  EXPECT_EQ(quantize_1x128(values, 1, 16).q[3], 0x80);
}

TEST(Quantize1x128, AcceptsNoRows) {
  const QuantizedRows result = quantize_1x128({}, 0, 272);
  EXPECT_TRUE(result.q.empty());
  EXPECT_TRUE(result.scale_inv.empty());
}

TEST(Quantize128x128, BlocksRestartAtTheUpHalf) {
  // I = 144: gate rows 0..143 (blocks of 128 and 16 rows), up rows 144..287 likewise.
  const std::int64_t rows = 288, cols = 16;
  std::vector<std::uint16_t> values = bf16_zeros(rows * cols);
  const auto set_row = [&](std::int64_t row, float value) {
    values[row * cols] = bf16_from_float(value);
  };
  set_row(127, 448.0F);
  set_row(143, 2.0F * 448.0F);
  set_row(144, 4.0F * 448.0F);
  set_row(271, 1.0F);
  set_row(272, 16.0F * 448.0F);

  const QuantizedWeights result = quantize_128x128(values, 1, rows, cols, 2);

  EXPECT_EQ(result.scale_inv, (std::vector<float>{1.0F, 2.0F, 4.0F, 16.0F}));
  EXPECT_EQ(result.scale_rows(), 4);
  EXPECT_EQ(result.scale_row_of(127), 0);
  EXPECT_EQ(result.scale_row_of(128), 1);
  EXPECT_EQ(result.scale_row_of(143), 1);
  EXPECT_EQ(result.scale_row_of(144), 2);
  EXPECT_EQ(result.scale_row_of(271), 2);
  EXPECT_EQ(result.scale_row_of(272), 3);
  EXPECT_EQ(decode_e4m3(result.q[271 * cols]), 0.25F);
}

TEST(Quantize128x128, ExpertsDoNotShareBlocksAndZeroTilesHaveScaleOne) {
  std::vector<std::uint16_t> values = bf16_zeros(2 * 16 * 144);
  values[16 * 144 + 128] = bf16_from_float(-1.0F);  // expert 1, row 0, second block

  const QuantizedWeights result = quantize_128x128(values, 2, 16, 144, 1);

  EXPECT_EQ(result.scale_inv, (std::vector<float>{1.0F, 1.0F, 1.0F, 0x1p-8F}));
  EXPECT_EQ(result.q[16 * 144 + 128], 0xF8);
}

TEST(Dequantize, MultipliesByTheScaleOfTheBlock) {
  std::vector<std::uint16_t> values = bf16_zeros(288 * 144);
  values[287 * 144 + 143] = bf16_from_float(3.0F);
  values[0] = bf16_from_float(-5.0F);

  const std::vector<float> weights = dequantize(quantize_128x128(values, 1, 288, 144, 2));
  const std::vector<float> rows = dequantize(quantize_1x128(values, 288, 144));

  EXPECT_EQ(weights[0], -5.0F);
  EXPECT_EQ(weights[287 * 144 + 143], 3.0F);
  EXPECT_EQ(rows[0], -5.0F);
  EXPECT_EQ(rows[287 * 144 + 143], 3.0F);
}

TEST(Quantize1x128, GivesBlocksThatShareAScaleThatOfTheLouder) {
  // Three blocks of amax 448, 1 and 2: the first two share, the last stands alone.
  std::vector<std::uint16_t> values = bf16_zeros(300);
  values[5] = bf16_from_float(448.0F);
  values[130] = bf16_from_float(-1.0F);
  values[299] = bf16_from_float(2.0F);

  const QuantizedRows result = quantize_1x128(values, 1, 300, 0.0F, 2);

  EXPECT_EQ(result.scale_inv, (std::vector<float>{1.0F, 1.0F, 0x1p-7F}));
  EXPECT_EQ(decode_e4m3(result.q[130]), -1.0F);
  EXPECT_EQ(decode_e4m3(result.q[299]), 256.0F);
}

TEST(Quantize128x128, GivesTilesThatShareAScaleThatOfTheLouder) {
  std::vector<std::uint16_t> values = bf16_zeros(2 * 300);
  values[300 + 200] = bf16_from_float(448.0F);  // the second tile
  values[299] = bf16_from_float(2.0F);          // the third

  const QuantizedWeights result = quantize_128x128(values, 1, 2, 300, 1, 2);

  EXPECT_EQ(result.scale_inv, (std::vector<float>{1.0F, 1.0F, 0x1p-7F}));
}

// The relative error, in the 2-norm, of normally distributed blocks 2^quieter below the block that
// they share their scale with.
double error_beside_a_louder_block(int quieter, std::int64_t sharing) {
  constexpr std::int64_t kRows = 256;
  const RandomStream random(1, 2);
  std::vector<std::uint16_t> values;
  for (std::int64_t i = 0; i < kRows * 256; ++i) {
    const auto value = static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
    values.push_back(bf16_from_float(std::ldexp(value, i % 256 < kBlock ? 0 : -quieter)));
  }
  const std::vector<float> recovered =
      dequantize(quantize_1x128(values, kRows, 256, 0.0F, sharing));
  double error = 0.0, norm = 0.0;
  for (std::int64_t i = 0; i < kRows * 256; ++i) {
    if (i % 256 < kBlock) continue;
    const double value = float_from_bf16(values[i]);
    error += (recovered[i] - value) * (recovered[i] - value);
    norm += value * value;
  }
  return std::sqrt(error / norm);
}

// The table in docs/recipes.md.
TEST(SharedScales, CostABlockNothingUntilItsNeighbourIs2To11TimesLouder) {
  const double own = error_beside_a_louder_block(0, 1);
  EXPECT_NEAR(own, 0.0266, 0.0002);
  for (const int quieter : {0, 4, 8, 10, 11})
    EXPECT_LT(error_beside_a_louder_block(quieter, 2), 1.02 * own) << quieter;
  EXPECT_NEAR(error_beside_a_louder_block(12, 2), 0.029, 0.0005);
  EXPECT_NEAR(error_beside_a_louder_block(13, 2), 0.039, 0.001);
  EXPECT_NEAR(error_beside_a_louder_block(14, 2), 0.075, 0.001);
  EXPECT_NEAR(error_beside_a_louder_block(16, 2), 0.30, 0.01);
  EXPECT_GT(error_beside_a_louder_block(18, 2), 0.9);
}

}  // namespace
}  // namespace moejit::reference
