// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/compare.h"

#include <cstdint>
#include <span>
#include <string>

namespace moejit::testing {

// Errors of a matrix [rows, cols] by row and by tile of 128 rows and 64 columns. A norm over the
// whole matrix would hide one wrong tile among a thousand.
struct TileErrors {
  double worst_row = 0.0;   // the largest |got - wanted| / |wanted| of a row, in the 2-norm
  double worst_tile = 0.0;  // likewise of a tile
  std::string report;       // the worst rows and tiles, one a line
};

// Rows and tiles whose wanted values are all zero have to be zero: any error counts as infinite, as
// does a NaN that is not wanted.
TileErrors tile_errors(std::span<const double> got, std::span<const double> wanted, int64_t cols);
// Returns the errors of results in bf16.
TileErrors tile_errors(std::span<const uint16_t> got, std::span<const double> wanted, int64_t cols);

}  // namespace moejit::testing
