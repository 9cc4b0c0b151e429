// SPDX-License-Identifier: Apache-2.0
#pragma once

// The E8M0 exponents of a warp's block: 32 rows of 128 columns, 4 to a lane, so that a lane holds 4
// groups of columns whole and 8 lanes hold the groups of rows.

#include "moejit_device/cast/block_source.cuh"
#include "moejit_device/core/e8m0.cuh"
#include "moejit_device/ptx/bytes.cuh"

namespace moejit::device {

// Returns the exponents of this lane's columns, a byte for each.
MOEJIT_DEVICE uint32_t column_exponents(const ValueBlock32& block) {
  uint32_t amax[2] = {0u, 0u};
#pragma unroll
  for (int32_t i = 0; i < kBlockRows; ++i) {
    amax[0] = ptx::larger_bf16_magnitudes(amax[0], block.row[i].word[0]);
    amax[1] = ptx::larger_bf16_magnitudes(amax[1], block.row[i].word[1]);
  }
  return e8m0_pair(amax[0]) | (e8m0_pair(amax[1]) << 16);
}

// Exponents of the rows, for each of the four groups of columns.
struct RowExponents {
  // Holds, in lane 8g + j of group g, the rows 4j to 4j + 3, a byte for each.
  uint32_t own;

  // Returns those of rows 4i to 4i + 3 in this lane's group.
  MOEJIT_DEVICE uint32_t of_rows(int32_t i) const {
    return ptx::shuffle(own, ptx::lane_index() / 8 * 8 + i);
  }
  // Returns the four bytes of row word_row(), that of the first columns lowest.
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

namespace detail {

// Halves a list of pairs of rows: the lane and its neighbor at kMask keep one half each, of both.
template <int32_t kMask, int32_t kCount>
MOEJIT_DEVICE void halve(uint32_t (&amax)[16]) {
  const bool is_upper = (ptx::lane_index() & kMask) != 0;
#pragma unroll
  for (int32_t i = 0; i < kCount / 2; ++i) {
    const uint32_t kept = is_upper ? amax[i + kCount / 2] : amax[i];
    const uint32_t given = is_upper ? amax[i] : amax[i + kCount / 2];
    amax[i] = ptx::larger_bf16_magnitudes(kept, ptx::shuffle_xor(given, kMask));
  }
}

}  // namespace detail

// Each of the eight lanes of a group ends with the maxima of four rows: 14 exchanges for all 32
// rows.
MOEJIT_DEVICE RowExponents row_exponents(const ValueBlock32& block) {
  uint32_t amax[16];  // of two rows each, the first in the low half
#pragma unroll
  for (int32_t i = 0; i < kBlockRows / 2; ++i) {
    const Bytes8 &even = block.row[2 * i], &odd = block.row[2 * i + 1];
    const uint32_t first = ptx::larger_bf16_magnitudes(even.word[0], even.word[1]);
    const uint32_t second = ptx::larger_bf16_magnitudes(odd.word[0], odd.word[1]);
    amax[i] = ptx::larger_bf16_magnitudes(ptx::permute_bytes<0x5410>(first, second),
                                          ptx::permute_bytes<0x7632>(first, second));
  }
  detail::halve<4, 16>(amax);
  detail::halve<2, 8>(amax);
  detail::halve<1, 4>(amax);
  return {.own = e8m0_pair(amax[0]) | (e8m0_pair(amax[1]) << 16)};
}

}  // namespace moejit::device
