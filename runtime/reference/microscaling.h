// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/transpose.h"

#include <cstdint>
#include <span>
#include <vector>

// Formats whose groups of 32 elements have a scale of the format E8M0: a byte E for 2^(E-127).
namespace moejit::reference {

inline constexpr std::int64_t kMxGroup = 32;  // elements that share a scale

// Returns the smallest E with amax <= 448 * 2^(E-127); 0 for 0, 254 for infinity. `amax` is at
// least 0 and not NaN.
std::uint8_t e8m0_from_amax(float amax);

// Returns 2^(E-127).
float e8m0_value(std::uint8_t exponent);

// A matrix in groups of 32: q is E4M3 [rows, cols]. By rows, `scale` is E8M0 [rows, 4 *
// block_count(cols)], with 0 behind the last group of a row; by columns [ceil(rows / 32), cols].
struct MxMatrix {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<std::uint8_t> q;
  std::vector<std::uint8_t> scale;
};

// Quantize `values`, bf16 [rows, cols], by rows or by columns, from the first element on. The last
// group of a row or column may be shorter. NaN elements raise no scale. A value times 2^(127-E) is
// rounded once to E4M3, to nearest even, saturating.
MxMatrix quantize_mx_rows(std::span<const std::uint16_t> values, std::int64_t rows,
                          std::int64_t cols);
MxMatrix quantize_mx_columns(std::span<const std::uint16_t> values, std::int64_t rows,
                             std::int64_t cols);

// Return the values of a matrix in groups of rows or of columns, q * 2^(E-127), in bf16.
std::vector<std::uint16_t> mx_row_values(const MxMatrix& matrix);
std::vector<std::uint16_t> mx_column_values(const MxMatrix& matrix);

// Returns bf16 rows [rows, cols] with zeros in all rows that are none of a group's.
std::vector<std::uint16_t> with_zero_pads(std::span<const std::uint16_t> values, std::int64_t cols,
                                          std::span<const std::int32_t> counts,
                                          std::span<const std::int32_t> offs);

// Return the scales of the groups' rows in the order of Blackwell's GEMMs: tiles of 128 by 4 that
// restart at every group. The tiles of group e begin behind the tiles of output_offs[e] rows.
// Within them scale j of row i is at ((i / 128) * tiles + j / 4) * 512 + (i % 32) * 16 + (i % 128)
// / 32 * 4 + j % 4. By columns i is the column and j the block of 32 rows. Scales of no row of a
// group are 0; tiles of no group are bytes `untouched`. `output_rows` is a multiple of 128.
std::vector<std::uint8_t> swizzle_row_scales(const MxMatrix& matrix, const TransposeGroups& groups,
                                             std::int64_t output_rows, std::uint8_t untouched);
std::vector<std::uint8_t> swizzle_column_scales(const MxMatrix& matrix,
                                                const TransposeGroups& groups,
                                                std::int64_t output_rows, std::uint8_t untouched);

}  // namespace moejit::reference
