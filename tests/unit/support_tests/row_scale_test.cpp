// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/casts.h"
#include "runtime/reference/number_formats.h"
#include "tests/unit/support_tests/special_floats.h"
#include "tests/unit/support_tests/untouched_byte.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace moejit::reference {
namespace {

std::vector<std::uint16_t> bf16(const std::vector<float>& values) {
  return bf16_from_floats(values);
}

TEST(QuantizeRows, GivesEachRowTheScaleOfItsLargestMagnitude) {
  const QuantizedRows rows = quantize_rows(bf16({0.0F, 0.0F, -0.0F,       //
                                                 1.0F, -448.0F, 0.5F,     //
                                                 450.0F, 2.0F, 0.0F,      //
                                                 kNan, 0x1p-60F, 0.0F,    //
                                                 -kInf, 3.0F, 1.0F,       //
                                                 0x1p-9F, -7.0F, 0.0F}),  //
                                           6, 3);
  // 450 becomes 450 in bf16, so that its row has the next power; 1e-12 is the least amax.
  EXPECT_EQ(rows.scale_inv, (std::vector<float>{0x1p-48F, 1.0F, 2.0F, 0x1p-48F, 1.0F, 0x1p-6F}));
  EXPECT_EQ(rows.q, (std::vector<std::uint8_t>{0x00, 0x00, 0x80,  //
                                               0x38, 0xFE, 0x30,  //
                                               0x76, 0x38, 0x00,  //
                                               0x7F, 0x00, 0x00,  //
                                               0xFE, 0x44, 0x38,  //
                                               0x20, 0xFE, 0x00}));
}

TEST(GroupColumnScales, CountRealRowsAlone) {
  const TransposeGroups groups{.counts = {2, 0, 1}, .offs = {0, 3, 3, 6}, .output_offs = {}};
  const auto values =
      bf16({1.0F, 0.0F, 448.0F, kNan, 1e30F, 1e30F, -2.0F, 449.0F, 1e30F, kInf, 1e30F, kInf});
  EXPECT_EQ(group_column_scales(values, 2, groups),
            (std::vector<float>{1.0F, 0x1p-48F, 0x1p-48F, 0x1p-48F, 0x1p-7F, 1.0F}));
}

TEST(CastColumns, FillsGroupsUpWithZeros) {
  const TransposeGroups groups{
      .counts = {130, 0, 2}, .offs = {0, 144, 144, 160}, .output_offs = {0, 256, 256, 384}};
  std::vector<std::uint16_t> values(160 * 2, bf16_from_float(1.0F));
  const std::vector<float> scales = {0x1p-8F, 1.0F, 1.0F, 1.0F, 0.5F, 2.0F};

  const std::vector<std::uint8_t> bytes = cast_columns(values, 2, groups, scales, 512, kUntouched);

  const auto code = [&](std::int64_t col, std::int64_t i) { return bytes[col * 512 + i]; };
  EXPECT_EQ(code(0, 0), 0x78);  // 256
  EXPECT_EQ(code(1, 129), 0x38);
  EXPECT_EQ(code(0, 130), 0);
  EXPECT_EQ(code(1, 255), 0);
  EXPECT_EQ(code(0, 257), 0x40);
  EXPECT_EQ(code(1, 256), 0x30);
  EXPECT_EQ(code(0, 258), 0);
  EXPECT_EQ(code(0, 383), 0);
  EXPECT_EQ(code(1, 384), kUntouched);
}

}  // namespace
}  // namespace moejit::reference
