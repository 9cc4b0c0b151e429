// SPDX-License-Identifier: Apache-2.0
// The reference of formats with E8M0 scales, on numbers worked out by hand.
#include "runtime/reference/microscaling.h"

#include "runtime/reference/number_formats.h"
#include "tests/unit/support_tests/special_floats.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

namespace moejit::reference {
namespace {

TEST(E8m0, IsTheSmallestPowerThatKeepsAmaxInRange) {
  EXPECT_EQ(e8m0_from_amax(448.0F), 127);
  EXPECT_EQ(e8m0_from_amax(std::nextafter(448.0F, 0.0F)), 127);
  EXPECT_EQ(e8m0_from_amax(std::nextafter(448.0F, kInf)), 128);
  EXPECT_EQ(e8m0_from_amax(1.0F), 119);    // 256 <= 448 < 512
  EXPECT_EQ(e8m0_from_amax(480.0F), 128);  // a floor of the logarithm would give 127
  EXPECT_EQ(e8m0_from_amax(std::numeric_limits<float>::max()), 247);
}

TEST(E8m0, TakesTheEndsOfTheRange) {
  EXPECT_EQ(e8m0_from_amax(0.0F), 0);
  EXPECT_EQ(e8m0_from_amax(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(e8m0_from_amax(std::ldexp(448.0F, -127)), 0);
  EXPECT_EQ(e8m0_from_amax(std::nextafter(std::ldexp(448.0F, -127), 1.0F)), 1);
  EXPECT_EQ(e8m0_from_amax(kInf), 254);
  EXPECT_EQ(e8m0_value(0), std::ldexp(1.0F, -127));
  EXPECT_EQ(e8m0_value(254), std::ldexp(1.0F, 127));
}

// The closed form over the bits of amax, which Transformer Engine states.
TEST(E8m0, IsTheClosedFormOverBits) {
  for (std::uint32_t bits = 0; bits < 0x7f800000U; bits += 0x1fff) {
    const auto closed = std::max(static_cast<int>((bits + 0x1fffffU) >> 23) - 8, 0);
    ASSERT_EQ(e8m0_from_amax(float_of_bits(bits)), closed) << bits;
  }
}

std::vector<std::uint16_t> bf16_of(const std::vector<float>& values) {
  return bf16_from_floats(values);
}

TEST(MxRows, HaveAScaleFor32ColumnsAndZerosBehindTheLast) {
  std::vector<float> values(48, 1.0F);
  values[3] = 896.0F;  // E 128: ones become 0.5
  values[40] = std::numeric_limits<float>::quiet_NaN();
  const MxMatrix matrix = quantize_mx_rows(bf16_of(values), 1, 48);
  EXPECT_EQ(matrix.scale, (std::vector<std::uint8_t>{128, 119, 0, 0}));
  EXPECT_EQ(matrix.q[0], encode_e4m3(0.5F));
  EXPECT_EQ(matrix.q[3], encode_e4m3(448.0F));
  EXPECT_EQ(matrix.q[32], encode_e4m3(256.0F));
  EXPECT_EQ(matrix.q[40], 0x7F);
  const std::vector<std::uint16_t> recovered = mx_row_values(matrix);
  EXPECT_EQ(float_from_bf16(recovered[3]), 896.0F);
  EXPECT_EQ(float_from_bf16(recovered[47]), 1.0F);
}

TEST(MxColumns, RestartEvery32Rows) {
  std::vector<float> values(33 * 2, 1.0F);
  values[2 * 31] = 896.0F;  // row 31, column 0
  values[2 * 32 + 1] = kInf;
  const MxMatrix matrix = quantize_mx_columns(bf16_of(values), 33, 2);
  EXPECT_EQ(matrix.scale, (std::vector<std::uint8_t>{128, 119, 119, 254}));
  const std::vector<std::uint16_t> recovered = mx_column_values(matrix);
  EXPECT_EQ(float_from_bf16(recovered[0]), 1.0F);
  EXPECT_EQ(float_from_bf16(recovered[65]), kInf);
}

// Two groups of 3 and 130 rows of 48 columns: 1 and 2 tiles of rows by 1 of scales.
TEST(Swizzle, PutsFourScalesOfARowSideBySideAndRows32ApartBehindEachOther) {
  MxMatrix matrix{.rows = 192, .cols = 48, .q = {}, .scale = std::vector<std::uint8_t>(192 * 4)};
  const auto scale = [](int row, int j) { return static_cast<std::uint8_t>(1 + row + 100 * j); };
  for (int row = 0; row < 192; ++row)
    for (int j = 0; j < 2; ++j) matrix.scale[static_cast<std::size_t>(4 * row + j)] = scale(row, j);
  const TransposeGroups groups{
      .counts = {3, 130}, .offs = {0, 32, 192}, .output_offs = {0, 128, 384}};
  const std::vector<std::uint8_t> got = swizzle_row_scales(matrix, groups, 512, 0xcd);
  ASSERT_EQ(got.size(), 4 * 512U);
  EXPECT_EQ(got[16], scale(1, 0));
  EXPECT_EQ(got[17], scale(1, 1));
  EXPECT_EQ(got[3 * 16], 0);                   // row 3 is no row of the first group
  EXPECT_EQ(got[512 + 4], scale(32 + 32, 0));  // row 32 of the second
  EXPECT_EQ(got[2 * 512 + 16 + 1], scale(32 + 129, 1));
  EXPECT_EQ(got[2 * 512 + 32], 0);
  EXPECT_EQ(got[3 * 512], 0xcd);
}

TEST(Swizzle, TakesColumnsForRowsWhereScalesBelongToTokens) {
  MxMatrix matrix{.rows = 320, .cols = 144, .q = {}, .scale = std::vector<std::uint8_t>(10 * 144)};
  for (std::size_t i = 0; i < matrix.scale.size(); ++i)
    matrix.scale[i] = static_cast<std::uint8_t>(1 + i % 251);
  const TransposeGroups groups{
      .counts = {3, 230}, .offs = {0, 64, 320}, .output_offs = {0, 128, 384}};
  const std::vector<std::uint8_t> got = swizzle_column_scales(matrix, groups, 384, 0xcd);
  // The first group has 2 tiles of columns and 1 of tokens, the second 2 by 2.
  EXPECT_EQ(got[0], matrix.scale[0]);
  EXPECT_EQ(got[1], 0);
  EXPECT_EQ(got[512], matrix.scale[128]);
  EXPECT_EQ(got[1024 + 1], matrix.scale[3 * 144]);
  EXPECT_EQ(got[1536 + 2 * 16 + 3], matrix.scale[(2 + 7) * 144 + 2]);  // block 7 of column 2
  EXPECT_EQ(got[2048], matrix.scale[2 * 144 + 128]);
  EXPECT_EQ(got[2048 + 16 * 16], 0);  // column 144
}

}  // namespace
}  // namespace moejit::reference
