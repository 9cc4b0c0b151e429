// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/gemm/tile_errors.h"

#include "runtime/reference/number_formats.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <vector>

namespace moejit::testing {
namespace {

constexpr int64_t kTileRows = 128;
constexpr int64_t kTileCols = 64;

// A part of the matrix, rows [row, last_row) of columns [col, last_col).
struct Part {
  int64_t row, last_row, col, last_col;
  double error = 0.0;    // |got - wanted| / |wanted| in the 2-norm
  double largest = 0.0;  // |got - wanted| of the element that differs most
  int64_t at = 0;        // that element
};

void measure(std::span<const double> got, std::span<const double> wanted, int64_t cols,
             Part& part) {
  double squared_error = 0.0;
  double squared_norm = 0.0;
  for (int64_t row = part.row; row < part.last_row; ++row) {
    for (int64_t i = row * cols + part.col; i < row * cols + part.last_col; ++i) {
      const double value = got[static_cast<std::size_t>(i)];
      const double exact = wanted[static_cast<std::size_t>(i)];
      double error = std::fabs(value - exact);
      if (std::isnan(value) && std::isnan(exact)) error = 0.0;
      if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
      squared_error += error * error;
      if (!std::isnan(exact)) squared_norm += exact * exact;
      if (error <= part.largest) continue;
      part.largest = error;
      part.at = i;
    }
  }
  if (squared_error > 0.0) part.error = std::sqrt(squared_error / squared_norm);
}

std::string lines_of(std::string_view kind, std::vector<Part> parts, int64_t cols) {
  constexpr std::size_t kShown = 5;
  std::ranges::sort(parts, std::greater<>{}, &Part::error);
  std::string lines;
  for (std::size_t i = 0; i < std::min(kShown, parts.size()); ++i) {
    const Part& part = parts[i];
    lines += fmt::format(
        "  {} rows {}..{}, columns {}..{}: relative error {:.2e}, the largest {:.3g} at row {}, "
        "column {}\n",
        kind, part.row, part.last_row - 1, part.col, part.last_col - 1, part.error, part.largest,
        part.at / cols, part.at % cols);
  }
  return lines;
}

double worst_of(const std::vector<Part>& parts) {
  double worst = 0.0;
  for (const Part& part : parts) worst = std::max(worst, part.error);
  return worst;
}

}  // namespace

TileErrors tile_errors(std::span<const uint16_t> got, std::span<const double> wanted,
                       int64_t cols) {
  std::vector<double> values;
  for (const uint16_t bits : got) values.push_back(reference::float_from_bf16(bits));
  return tile_errors(values, wanted, cols);
}

TileErrors tile_errors(std::span<const double> got, std::span<const double> wanted, int64_t cols) {
  const int64_t rows = static_cast<int64_t>(wanted.size()) / cols;
  std::vector<Part> row_parts, tile_parts;
  for (int64_t row = 0; row < rows; ++row) row_parts.push_back({row, row + 1, 0, cols});
  for (int64_t row = 0; row < rows; row += kTileRows) {
    for (int64_t col = 0; col < cols; col += kTileCols) {
      tile_parts.push_back(
          {row, std::min(row + kTileRows, rows), col, std::min(col + kTileCols, cols)});
    }
  }
  for (Part& part : row_parts) measure(got, wanted, cols, part);
  for (Part& part : tile_parts) measure(got, wanted, cols, part);
  return {.worst_row = worst_of(row_parts),
          .worst_tile = worst_of(tile_parts),
          .report = lines_of("row", row_parts, cols) + lines_of("tile", tile_parts, cols)};
}

}  // namespace moejit::testing
