// SPDX-License-Identifier: Apache-2.0
#pragma once

// What casts of blocks of rows have in common: which block a warp takes, its rows, and its values.
// Blocks of rows of groups are one for each warp of the grid. If the rows belong to matrices, warps
// walk: each takes the next block that is its own, so that any number of CTAs casts all.
//
// Cast has kRows (of a block), kColumns, kWarps, kWalks, the types Source and Place, and
//
//   kMoreBlocks               the blocks that there may be beside those of all rows together
//   find_rows(params, first)  returns the BlockOfGroup that begins there
//   cast(params, block, rows, place, column, has_column)
//                             stores the lane's columns from `column` on. All lanes of the warp:
//                             those without columns have zeros.

#include "moejit_device/cast/row_block.cuh"
#include "moejit_device/map/call_tokens.cuh"
#include "moejit_device/transpose/tile_place.cuh"

namespace moejit::device {

template <typename Cast, typename Params>
MOEJIT_DEVICE void cast_block(const Params& params, const typename Cast::Place& place) {
  const BlockOfGroup rows = Cast::find_rows(params, place.row * Cast::kRows);
  if (rows.stored == 0) return;
  const int32_t column = place.column * kRowBlockColumns + kRowBlockLaneColumns * ptx::lane_index();
  const bool has_column = Cast::kColumns % kRowBlockColumns == 0 || column < Cast::kColumns;
  const auto block = Cast::Source::fetch(params, rows.first, column, has_column ? rows.real : 0);
  Cast::cast(params, block, rows, place, column, has_column);
}

// The grid has at least one warp for every block that the call may fill, or warps walk.
template <typename Cast, typename Params>
MOEJIT_DEVICE void cast_blocks(const Params& params) {
  if (has_other_tokens(params.call)) return;
  const auto skip = ptx::global(params.skip);
  if (skip && ptx::load(skip) != 0) return;
  const auto rows =
      static_cast<uint32_t>(ceil_div(params.rows, int64_t{Cast::kRows})) + Cast::kMoreBlocks;
  const auto ctas = static_cast<uint32_t>(ptx::cta_count());
  for (auto cta = static_cast<uint32_t>(ptx::cta_index());; cta += ctas) {
    // A warp that walks has its index from one lane, so that the compiler knows that lanes stay
    // together; else it makes each exchange between them twice as long.
    const int32_t warp = Cast::kWalks ? ptx::shuffle(ptx::warp_index(), 0) : ptx::warp_index();
    const auto place = Cast::Place::of(cta * Cast::kWarps + static_cast<uint32_t>(warp),
                                       ctas * Cast::kWarps, rows);
    if (!place.exists()) return;
    cast_block<Cast>(params, place);
    if constexpr (!Cast::kWalks) return;
  }
}

}  // namespace moejit::device
