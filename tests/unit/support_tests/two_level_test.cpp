// SPDX-License-Identifier: Apache-2.0
// The reference of NVFP4, on numbers worked out by hand.
#include "runtime/reference/two_level.h"

#include "runtime/reference/number_formats.h"
#include "tests/unit/support_tests/special_floats.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <utility>

namespace moejit::reference {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();

TEST(E2m1, RoundsToTheNearestNumberAndTiesToEvenCodes) {
  constexpr std::pair<float, int> kWanted[] = {
      {0.0F, 0},  {0.25F, 0}, {0.26F, 1}, {0.5F, 1},  {0.74F, 1}, {0.75F, 2},   {1.0F, 2},
      {1.25F, 2}, {1.26F, 3}, {1.74F, 3}, {1.75F, 4}, {2.5F, 4},  {2.51F, 5},   {3.49F, 5},
      {3.5F, 6},  {5.0F, 6},  {5.01F, 7}, {6.0F, 7},  {7.0F, 7},  {kLargest, 7}};
  for (const auto& [value, code] : kWanted) {
    EXPECT_EQ(encode_e2m1(value), code) << value;
    EXPECT_EQ(encode_e2m1(-value), code | 8) << -value;
  }
  EXPECT_EQ(encode_e2m1(kInf), 7);
  EXPECT_EQ(encode_e2m1(-kInf), 15);
  EXPECT_EQ(encode_e2m1(std::nanf("")), 7);
  EXPECT_EQ(encode_e2m1(-std::nanf("")), 7);
}

TEST(E2m1, HasTheNumbersOfItsSpecification) {
  constexpr float kNumbers[] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  for (uint8_t code = 0; code < 16; ++code) {
    EXPECT_EQ(decode_e2m1(code), (code < 8 ? 1.0F : -1.0F) * kNumbers[code % 8]);
    EXPECT_EQ(std::signbit(decode_e2m1(code)), code >= 8);
    EXPECT_EQ(encode_e2m1(decode_e2m1(code)), code);
  }
}

// The 2,032 products of a number of E2M1 and one of E4M3 that is not NaN and not negative.
TEST(E2m1, TimesE4m3IsANumberOfBf16) {
  for (uint8_t code = 0; code < 16; ++code)
    for (int scale = 0; scale < 0x7f; ++scale) {
      const float product = decode_e2m1(code) * decode_e4m3(static_cast<uint8_t>(scale));
      EXPECT_EQ(float_from_bf16(bf16_from_float(product)), product) << code << " " << scale;
    }
}

TEST(TwoLevels, HaveOneScaleForAllThatIsAQuotient) {
  EXPECT_EQ(two_level_expert_scale(2688.0F).scale, 1.0F);
  EXPECT_EQ(two_level_expert_scale(1.0F).scale, 2688.0F);
  EXPECT_EQ(two_level_expert_scale(0.0F).scale, 1.0F);
  EXPECT_EQ(two_level_expert_scale(kInf).scale, 1.0F);
  EXPECT_EQ(two_level_expert_scale(std::numeric_limits<float>::denorm_min()).scale, kLargest);
  EXPECT_EQ(two_level_expert_scale(3.0F).scale_inv, 1.0F / 896.0F);
}

// All elements of the first row are 6, so that its scale is the largest; in the second one the
// largest is 3, and in the third one 0.
TEST(TwoLevels, HaveAScaleForSixteenElements) {
  std::vector<uint16_t> values(3 * 32, bf16_from_float(6.0F));
  for (std::size_t i = 32; i < 96; ++i) values[i] = bf16_from_float(i < 64 ? -3.0F : 0.0F);
  values[33] = bf16_from_float(0.74F);
  const float scale = two_level_expert_scale(6.0F).scale;
  EXPECT_EQ(scale, 448.0F);
  const TwoLevelMatrix rows = quantize_two_levels(values, 3, 32, scale, TwoLevelBlocks::kRows);
  EXPECT_EQ(decode_e4m3(rows.scales[0]), 448.0F);
  EXPECT_EQ(decode_e4m3(rows.scales[32]), 224.0F);
  EXPECT_EQ(rows.scales[64], 0);
  EXPECT_EQ(rows.codes[0], 7);    // 6
  EXPECT_EQ(rows.codes[32], 15);  // -3 / 0.5
  EXPECT_EQ(rows.codes[33], 3);   // 0.74 / 0.5 is nearest to 1.5
  EXPECT_EQ(rows.codes[64], 0);
  EXPECT_EQ(float_from_bf16(two_level_values(rows)[33]), 1.5F * 224.0F);
  const TwoLevelMatrix columns =
      quantize_two_levels(values, 3, 32, scale, TwoLevelBlocks::kColumns);
  EXPECT_EQ(decode_e4m3(columns.scales[64]), 448.0F);  // of the column's three elements
  EXPECT_EQ(columns.codes[32], 8 | 5);                 // -3
  EXPECT_EQ(quantize_two_levels(values, 3, 32, scale, TwoLevelBlocks::kTiles).codes[33], 1);
}

TEST(TwoLevels, ArePackedAlongTheirContraction) {
  TwoLevelMatrix matrix{.rows = 16, .cols = 16, .codes = {}, .scales = {}};
  for (int i = 0; i < 256; ++i) {
    matrix.codes.push_back(static_cast<uint8_t>(i % 16));
    matrix.scales.push_back(static_cast<uint8_t>(i / 16));
  }
  EXPECT_EQ(packed_row_codes(matrix)[1], 0x32);
  EXPECT_EQ(row_scales(matrix)[8], 1);
  EXPECT_EQ(row_scales(matrix)[9], 0);
  const std::vector<uint8_t> columns = packed_column_codes(matrix, 32, 0xee);
  EXPECT_EQ(columns[0], 0x00);
  EXPECT_EQ(columns[16], 0x11);
  EXPECT_EQ(columns[8], 0xee);
  EXPECT_EQ(column_scales(matrix, 32, 0xee)[1], 0xee);
}

// Two groups of rows in tiles of their own; each scale tells its row and block.
TEST(TwoLevels, HaveScalesInTheOrderOfTheTensorCores) {
  const TransposeGroups groups{
      .counts = {1, 33}, .offs = {0, 16, 64}, .output_offs = {0, 128, 256}};
  std::vector<std::uint8_t> rows(64 * 16), columns(256 * 4);
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i] = static_cast<std::uint8_t>(i / 16 * 3 + i % 16);
  for (std::size_t i = 0; i < columns.size(); ++i)
    columns[i] = static_cast<std::uint8_t>(i / 4 * 5 + i % 4);
  const auto by_rows = swizzled_row_scales(rows, 256, groups);
  ASSERT_EQ(by_rows.size(), 256U * 16);
  EXPECT_EQ(by_rows[0], 0);
  EXPECT_EQ(by_rows[512 + 1], 5);                      // block 5 of row 0
  EXPECT_EQ(by_rows[16], 0);                           // row 1 of the first group is a pad row
  EXPECT_EQ(by_rows[128 * 16], 16 * 3);                // the second group begins with row 16
  EXPECT_EQ(by_rows[128 * 16 + 512 + 4], 48 * 3 + 4);  // block 4 of its row 32
  const auto by_columns = swizzled_column_scales(columns, 256, 64, groups);
  ASSERT_EQ(by_columns.size(), 256U * 16);
  EXPECT_EQ(by_columns[1], 0);                                     // the first group has one block
  EXPECT_EQ(by_columns[128 * 16 + 2], 3);                          // rows 48 to 63 of column 0
  EXPECT_EQ(by_columns[128 * 16 + 16], 5 + 1);                     // column 1, rows 16 to 31
  EXPECT_EQ(by_columns[128 * 16 + 2 * 512], (128 * 5 + 1) % 256);  // column 128
}

}  // namespace
}  // namespace moejit::reference
