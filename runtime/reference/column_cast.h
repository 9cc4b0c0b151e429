// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/transpose.h"

#include <cstdint>
#include <span>
#include <vector>

namespace moejit::reference {

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

}  // namespace moejit::reference
