// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/casts.h"
#include "runtime/reference/number_formats.h"
#include "tests/unit/support_tests/untouched_byte.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <limits>

namespace moejit::reference {
namespace {

TEST(QuantizeColumns, RestartsBlocksAtEveryGroupAndFillsThemUpWithZeros) {
  // Rows 0 to 129 and 144 to 145 of two columns.
  const TransposeGroups groups{
      .counts = {130, 0, 2}, .offs = {0, 144, 144, 160}, .output_offs = {0, 256, 256, 384}};
  std::vector<std::uint16_t> values(160 * 2, bf16_from_float(1e30F));
  std::fill_n(values.begin(), 130 * 2, std::uint16_t{0});
  std::fill_n(values.begin() + 144 * 2, 2 * 2, std::uint16_t{0});
  values[5 * 2] = bf16_from_float(448.0F);
  values[6 * 2] = bf16_from_float(-1.0F);
  values[129 * 2] = bf16_from_float(1.0F);
  values[128 * 2 + 1] = bf16_from_float(-0.5F);
  values[145 * 2] = bf16_from_float(2.0F);

  const ColumnCast cast = quantize_columns(values, 2, groups, 512, 0.0F, kUntouched);

  const std::vector<float> scales(cast.scale_inv.begin(), cast.scale_inv.begin() + 6);
  EXPECT_EQ(scales, (std::vector<float>{1.0F, 1.0F, 0x1p-8F, 0x1p-9F, 0x1p-7F, 1.0F}));
  const auto code = [&](std::int64_t col, std::int64_t i) { return cast.bytes[col * 512 + i]; };
  EXPECT_EQ(code(0, 5), 0x7E);
  EXPECT_EQ(code(0, 6), 0xB8);
  EXPECT_EQ(code(0, 129), 0x78);
  EXPECT_EQ(code(1, 128), 0xF8);
  EXPECT_EQ(code(0, 257), 0x78);
  EXPECT_EQ(code(0, 130), 0);  // what rows behind the group hold is not seen
  EXPECT_EQ(code(0, 383), 0);
  EXPECT_EQ(code(0, 384), kUntouched);
  EXPECT_EQ(bits_of(cast.scale_inv[6]), 0xCDCDCDCDU);
}

TEST(QuantizeColumns, PassesOverNaNAndSaturatesWhereThereIsAnInfinity) {
  const TransposeGroups groups{.counts = {3}, .offs = {0, 16}, .output_offs = {0, 128}};
  std::vector<std::uint16_t> values(16 * 2, 0);
  values[0] = bf16_from_float(std::numeric_limits<float>::quiet_NaN());
  values[2] = bf16_from_float(3.0F);
  values[1] = bf16_from_float(-std::numeric_limits<float>::infinity());
  values[3] = bf16_from_float(3.0F);

  const ColumnCast cast = quantize_columns(values, 2, groups, 128, 1e-10F, kUntouched);

  EXPECT_EQ(cast.scale_inv, (std::vector<float>{0x1p-7F, 1.0F}));
  EXPECT_EQ(cast.bytes[0], 0x7F);
  EXPECT_EQ(decode_e4m3(cast.bytes[1]), 384.0F);
  EXPECT_EQ(cast.bytes[128], 0xFE);
  EXPECT_EQ(decode_e4m3(cast.bytes[129]), 3.0F);
}

}  // namespace
}  // namespace moejit::reference
