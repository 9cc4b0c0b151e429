// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where the 32 rows of a block come from, and which of them are real: row_block.cuh.

#include "moejit_device/cast/row_block.cuh"
#include "moejit_device/params/block_cast_params.h"

namespace moejit::device {

inline constexpr int32_t kBlockRows = 32;
inline constexpr int32_t kBlockLaneColumns = kRowBlockLaneColumns;
inline constexpr int32_t kBlockColumns = kRowBlockColumns;

// Returns the rows of the block that begins at row `first` < P. kGroups 0: rows that all are real.
template <int32_t kGroups>
MOEJIT_DEVICE BlockOfGroup find_block_rows(const BlockCastParams& params, int64_t first) {
  if constexpr (kGroups == 0) {
    const auto left = static_cast<int32_t>(smaller(params.rows - first, int64_t{kBlockRows}));
    return {.group = 0, .real = left, .stored = left};
  } else {
    return find_block<kGroups, kBlockRows>(params, first);
  }
}

using ValueBlock32 = RowBlock<kBlockRows>;

template <int32_t kColumns>
using BlocksInOrder = RowBlocksInOrder<kColumns, kBlockRows>;
template <int32_t kColumns>
using GatheredBlocks = GatheredRowBlocks<kColumns, kBlockRows, true>;
template <int32_t kColumns>
using GatheredBlocksOfAll = GatheredRowBlocks<kColumns, kBlockRows, false>;

}  // namespace moejit::device
