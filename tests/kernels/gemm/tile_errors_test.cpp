// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/gemm/tile_errors.h"

#include "runtime/reference/number_formats.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

namespace moejit::testing {
namespace {

constexpr int64_t kRows = 300, kCols = 130;

TEST(TileErrors, AreZeroForEqualMatrices) {
  const std::vector<double> wanted(kRows * kCols, 2.0);
  const std::vector<uint16_t> got(kRows * kCols, reference::bf16_from_float(2.0f));
  const TileErrors errors = tile_errors(got, wanted, kCols);
  EXPECT_EQ(errors.worst_row, 0.0);
  EXPECT_EQ(errors.worst_tile, 0.0);
}

TEST(TileErrors, FindOneWrongElementAndSayWhereItIs) {
  const std::vector<double> wanted(kRows * kCols, 2.0);
  std::vector<uint16_t> got(kRows * kCols, reference::bf16_from_float(2.0f));
  got[290 * kCols + 129] = reference::bf16_from_float(4.0f);
  const TileErrors errors = tile_errors(got, wanted, kCols);
  EXPECT_DOUBLE_EQ(errors.worst_row, 2.0 / (2.0 * std::sqrt(130.0)));
  EXPECT_DOUBLE_EQ(errors.worst_tile, 2.0 / (2.0 * std::sqrt(44.0 * 2.0)));
  EXPECT_EQ(errors.report.find("  row rows 290..290, columns 0..129: relative error 8.77e-02, the "
                               "largest 2 at row 290, column 129"),
            0u)
      << errors.report;
  EXPECT_NE(errors.report.find("tile rows 256..299, columns 128..129"), std::string::npos);
}

TEST(TileErrors, AreInfiniteWhereAZeroOrANumberIsNotMet) {
  const std::vector<double> zeros(kRows * kCols, 0.0);
  std::vector<uint16_t> got(kRows * kCols, 0);
  got[5] = 1;
  EXPECT_TRUE(std::isinf(tile_errors(got, zeros, kCols).worst_row));
  got[5] = 0x7fc0;
  EXPECT_TRUE(std::isinf(tile_errors(got, zeros, kCols).worst_tile));
}

TEST(TileErrors, AllowANanThatIsWanted) {
  std::vector<double> wanted(kRows * kCols, 0.0);
  std::vector<uint16_t> got(kRows * kCols, 0);
  wanted[5] = std::numeric_limits<double>::quiet_NaN();
  got[5] = 0x7fc0;
  EXPECT_EQ(tile_errors(got, wanted, kCols).worst_row, 0.0);
}

}  // namespace
}  // namespace moejit::testing
