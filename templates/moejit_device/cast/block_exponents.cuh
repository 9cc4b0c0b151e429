// SPDX-License-Identifier: Apache-2.0
#pragma once

// The blocks of E8M0 casts, 32 rows of 128 columns a warp, and their exponents. A lane has 4
// columns, so that it holds 4 groups of columns whole and 8 lanes hold the groups of rows.

#include "moejit_device/cast/row_block.cuh"
#include "moejit_device/core/e8m0.cuh"

namespace moejit::device {

inline constexpr int32_t kBlockRows = 32;

using ValueBlock32 = RowBlock<kBlockRows>;

template <int32_t kColumns>
using BlocksInOrder = RowBlocksInOrder<kColumns, kBlockRows>;
template <int32_t kColumns>
using GatheredBlocks = GatheredRowBlocks<kColumns, kBlockRows, true>;
template <int32_t kColumns>
using GatheredBlocksOfAll = GatheredRowBlocks<kColumns, kBlockRows, false>;

// Returns the exponents of four magnitudes, a byte for each.
MOEJIT_DEVICE uint32_t e8m0_quad(const Bytes8& amax) {
  return e8m0_pair(amax.word[0]) | (e8m0_pair(amax.word[1]) << 16);
}

// Returns the exponents of this lane's columns, a byte for each.
MOEJIT_DEVICE uint32_t column_exponents(const ValueBlock32& block) {
  return e8m0_quad(amax_of_columns(block));
}

// Exponents of the rows, for each of the four groups of columns.
struct RowExponents {
  // Holds, in lane 8g + j of group g, the rows 4j to 4j + 3, a byte for each.
  uint32_t own;

  // Returns the bytes of rows 4i to 4i + 3 in this lane's group.
  MOEJIT_DEVICE uint32_t of_rows(int32_t i) const {
    return ptx::shuffle(own, ptx::lane_index() / 8 * 8 + i);
  }
  // Returns the four bytes of row word_row(), the byte of the first columns lowest.
  MOEJIT_DEVICE uint32_t word() const {
    const int32_t group = ptx::lane_index() / 8;
    const uint32_t next = ptx::shuffle_xor(own, 8);
    const uint32_t pairs = group % 2 == 0 ? ptx::permute_bytes<0x6240>(own, next)
                                          : ptx::permute_bytes<0x7351>(next, own);
    const uint32_t far = ptx::shuffle_xor(pairs, 16);
    return group < 2 ? ptx::permute_bytes<0x5410>(pairs, far)
                     : ptx::permute_bytes<0x7632>(far, pairs);
  }
  MOEJIT_DEVICE static int32_t word_row() {
    return ptx::lane_index() % 8 * 4 + ptx::lane_index() / 8;
  }
};

// Each of the eight lanes of a group ends with the maxima of four rows: 14 exchanges for all 32
// rows.
MOEJIT_DEVICE RowExponents row_exponents(const ValueBlock32& block) {
  return {.own = e8m0_quad(amax_of_rows(block))};
}

}  // namespace moejit::device
