// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where the 16 rows of a stripe come from, and to which expert they belong: row_block.cuh.

#include "moejit_device/cast/row_block.cuh"
#include "moejit_device/params/two_level_cast_params.h"

namespace moejit::device {

inline constexpr int32_t kStripeRows = 16;
inline constexpr int32_t kStripeLaneColumns = kRowBlockLaneColumns;
inline constexpr int32_t kStripeColumns = kRowBlockColumns;

// 16 rows from a multiple of 16 on.
struct StripeRows {
  int32_t expert;
  int32_t real;    // that have values
  int32_t stored;  // that are written; the others belong to nobody
};

// Returns the rows of the stripe that begins at row `first` < P. kGroups 0: rows that all are real,
// those of matrices of kMatrixRows, or of one.
template <int32_t kGroups, int32_t kMatrixRows>
MOEJIT_DEVICE StripeRows find_stripe_rows(const TwoLevelCastParams& params, int64_t first) {
  if constexpr (kGroups == 0) {
    const auto left = static_cast<int32_t>(smaller(params.rows - first, int64_t{kStripeRows}));
    const int64_t matrix = kMatrixRows == 0 ? 0 : first / larger(kMatrixRows, int32_t{1});
    return {.expert = static_cast<int32_t>(matrix), .real = left, .stored = left};
  } else {
    const BlockOfGroup block = find_block<kGroups, kStripeRows>(params, first);
    return {.expert = block.group, .real = block.real, .stored = block.stored};
  }
}

using ValueStripe = RowBlock<kStripeRows>;

template <int32_t kColumns>
using StripesInOrder = RowBlocksInOrder<kColumns, kStripeRows>;
template <int32_t kColumns>
using GatheredStripes = GatheredRowBlocks<kColumns, kStripeRows, true>;
template <int32_t kColumns>
using GatheredStripesOfAll = GatheredRowBlocks<kColumns, kStripeRows, false>;

}  // namespace moejit::device
