// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/grouped_gemm.h"

#include "tests/unit/planner/planner_layers.h"

#include <gtest/gtest.h>

namespace moejit::compiler {

void PrintTo(const ColumnTiles& tiles, std::ostream* out) {
  *out << tiles.wide << " wide, " << tiles.narrow << " narrow";
}

namespace {

TEST(ColumnTiles, FitMultiplesOf64From256On) {
  EXPECT_EQ(choose_column_tiles(384), (ColumnTiles{2, 0}));
  EXPECT_EQ(choose_column_tiles(256), (ColumnTiles{0, 2}));
  EXPECT_EQ(choose_column_tiles(320), (ColumnTiles{1, 1}));
  EXPECT_EQ(choose_column_tiles(4096), (ColumnTiles{20, 2}));
  EXPECT_EQ(choose_column_tiles(7168), (ColumnTiles{36, 2}));
  EXPECT_EQ(choose_column_tiles(2880), (ColumnTiles{15, 0}));
  EXPECT_EQ(choose_column_tiles(768), (ColumnTiles{4, 0}));
  for (int64_t columns = 256; columns <= 8192; columns += 64) {
    const ColumnTiles tiles = choose_column_tiles(columns);
    EXPECT_EQ(tiles.wide * 192 + tiles.narrow * 128, columns);
    EXPECT_LT(tiles.narrow, 3) << columns;
  }
}

TEST(ColumnTiles, WasteTheFewestColumnsOfOtherWidths) {
  EXPECT_EQ(choose_column_tiles(8), (ColumnTiles{0, 1}));
  EXPECT_EQ(choose_column_tiles(64), (ColumnTiles{0, 1}));
  EXPECT_EQ(choose_column_tiles(128), (ColumnTiles{0, 1}));
  EXPECT_EQ(choose_column_tiles(136), (ColumnTiles{1, 0}));
  EXPECT_EQ(choose_column_tiles(200), (ColumnTiles{0, 2}));
  EXPECT_EQ(choose_column_tiles(1440), (ColumnTiles{7, 1}));  // 1472
}

// 384 columns are two wide tiles or three narrow ones.
TEST(ColumnTiles, AreFewWhereTheWasteIsTheSame) {
  EXPECT_EQ(choose_column_tiles(380), (ColumnTiles{2, 0}));
  EXPECT_EQ(choose_column_tiles(508), (ColumnTiles{2, 1}));  // not four narrow ones
}

TEST(GroupedGemmTiles, MakeOneOfSectionsThatNoScaleBlockStraddles) {
  const GroupedGemmSpec problem{.local_experts = 2, .sections = 2, .section_n = 384, .k = 64};
  const GroupedGemmSpec spec = choose_tiles(problem);
  EXPECT_EQ(spec.sections, 1);
  EXPECT_EQ(spec.section_n, 768);
  EXPECT_EQ(spec.wide_tiles, 4);
  EXPECT_EQ(spec.narrow_tiles, 0);
  EXPECT_EQ(tile_reasons(problem, spec).front(),
            "the 2 sections are one of 768 columns: no scale block lies in two of them");
}

TEST(GroupedGemmTiles, KeepSectionsApartWhoseScaleBlocksRestart) {
  const GroupedGemmSpec problem{.local_experts = 2, .sections = 2, .section_n = 144, .k = 64};
  const GroupedGemmSpec spec = choose_tiles(problem);
  EXPECT_EQ(spec.sections, 2);
  EXPECT_EQ(spec.section_n, 144);
  EXPECT_EQ(spec.wide_tiles, 1);
  EXPECT_NE(tile_reasons(problem, spec).front().find("cover 144 columns with 48 to spare"),
            std::string::npos);
}

TEST(GroupedGemmTensorMaps, DescribeTheMatricesInBoxesOfTiles) {
  const GroupedGemmSpec spec{
      .local_experts = 3, .sections = 2, .section_n = 144, .k = 272, .wide_tiles = 1};
  const auto maps = grouped_gemm_tensor_maps(spec, 1000, {.a = "x", .b = "w", .d = "y"});
  const TensorMapPlan a{"a_map",
                        "x",
                        {.dtype = DType::kF8E4M3,
                         .rank = 2,
                         .dims = {272, 1000, 1},
                         .strides_bytes = {272, 0},
                         .box = {128, 128, 1},
                         .is_swizzled = true}};
  TensorMapPlan b = a;
  b.role = "b_map";
  b.tensor = "w";
  b.box.dims = {272, 3 * 288, 1};
  b.box.box[1] = spec.wide_columns;
  const TensorMapPlan d{"d_map",
                        "y",
                        {.dtype = DType::kBF16,
                         .rank = 3,
                         .dims = {144, 2, 1000},
                         .strides_bytes = {288, 576},
                         .box = {64, 1, 64},
                         .is_swizzled = true}};
  EXPECT_EQ(maps, (std::vector{a, b, d}));
}

TEST(GroupedGemmTensorMaps, TakeHalfAsManyElementsOfTwiceTheBytes) {
  const GroupedGemmSpec spec{
      .operands = DType::kBF16, .local_experts = 3, .section_n = 64, .k = 256};
  const TensorBox box = grouped_gemm_tensor_maps(spec, 10, {}).front().box;
  EXPECT_EQ(box.dtype, DType::kBF16);
  EXPECT_EQ(box.strides_bytes[0], 512);
  EXPECT_EQ(box.box[0], 64);
}

}  // namespace
}  // namespace moejit::compiler
