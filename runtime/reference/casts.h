// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/number_formats.h"
#include "runtime/reference/quantize.h"
#include "runtime/reference/transpose.h"

#include <cstdint>
#include <span>
#include <vector>

namespace moejit::reference {

// The smallest amax of a row, or of a group's column, that has one scale.
inline constexpr float kRowEps = 1e-12F;

// Quantizes `values`, bf16 [rows, cols], with a power-of-two scale for each row: scale_inv is
// [rows].
QuantizedRows quantize_rows(std::span<const std::uint16_t> values, std::int64_t rows,
                            std::int64_t cols, float eps = kRowEps);

// Returns scale_inv [groups, cols] of `values`, bf16 [rows, cols]: a power-of-two scale for the
// counts[e] rows of group e in each column. Other rows count for nothing.
std::vector<float> group_column_scales(std::span<const std::uint16_t> values, std::int64_t cols,
                                       const TransposeGroups& groups, float eps = kRowEps);

// Casts `values`, bf16 [rows, cols], to E4M3 columns [cols, output_cols] with the scales of their
// groups: scale_inv is [groups, cols]. The rows of a group become the output columns from its
// output offset on, behind which zeros follow up to a multiple of 128. Output that belongs to no
// group consists of bytes `untouched`.
std::vector<std::uint8_t> cast_columns(std::span<const std::uint16_t> values, std::int64_t cols,
                                       const TransposeGroups& groups,
                                       std::span<const float> scale_inv, std::int64_t output_cols,
                                       std::uint8_t untouched);

// Rows cast by columns: bytes are E4M3 [cols, output_cols], scale_inv is [output_cols / 128, cols].
struct ColumnCast {
  std::vector<std::uint8_t> bytes;
  std::vector<float> scale_inv;
};

// Quantizes `values`, bf16 [rows, cols], to columns with a power-of-two scale for 128 rows of each.
// The rows of a group become the output columns from its output offset on, and blocks restart at
// every group. The last block of a group covers the rows that are left; zeros follow. Output that
// belongs to no group consists of bytes `untouched`.
ColumnCast quantize_columns(std::span<const std::uint16_t> values, std::int64_t cols,
                            const TransposeGroups& groups, std::int64_t output_cols, float eps,
                            std::uint8_t untouched);

// A tensor of delayed scaling: bytes [rows, cols], colwise [cols, rows].
struct CastTransposed {
  std::vector<std::uint8_t> bytes;
  std::vector<std::uint8_t> colwise;
  float amax = 0.0F;       // the largest magnitude apart from NaN; 0 if there is none
  float scale_inv = 0.0F;  // 1 / scale, rounded to nearest even
};

// Casts `values` [rows, cols]. Each product with `scale` is rounded to fp32, then to the format.
CastTransposed cast_transpose(std::span<const float> values, std::int64_t rows, std::int64_t cols,
                              float scale, Fp8Format format);

}  // namespace moejit::reference
