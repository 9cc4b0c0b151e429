// SPDX-License-Identifier: Apache-2.0
#pragma once

// What kernels share that have tiles of 128 permuted rows by 128 columns.

#include "moejit_device/stage/position.cuh"
#include "moejit_device/transpose/output_groups.cuh"

namespace moejit::device {

// The rows of a tile of [P, kColumns], and its place in the row of tiles. Params: records with offs
// and rows.
template <int32_t kColumns>
struct PermutedTile {
  RowTile rows;
  int32_t existing;  // rows that the group owns, from the first on, real and pad
  int32_t column;    // of tiles

  template <typename Params>
  MOEJIT_DEVICE PermutedTile(const Params& params, const RowTile& of, int32_t number)
      : rows(of), column(number) {
    const int64_t end =
        smaller(int64_t{ptx::load(ptx::global(params.offs) + (of.group + 1))}, params.rows);
    existing = static_cast<int32_t>(smaller(end - of.first, int64_t{128}));
  }
  MOEJIT_DEVICE SegmentPosition<kColumns> position(int32_t row) const {
    return {rows.first + row, column,
            row < rows.count ? RowKind::kReal
            : row < existing ? RowKind::kPad
                             : RowKind::kAbsent};
  }
};

}  // namespace moejit::device
