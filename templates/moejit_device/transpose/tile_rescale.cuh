// SPDX-License-Identifier: Apache-2.0
#pragma once

// One scale for a tile of 128x128 bytes that two warps hold, 64 rows each: as byte blocks, and the
// scales of the rows in pairs.

#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/transpose/byte_block.cuh"
#include "moejit_device/transpose/row_shifts.cuh"

namespace moejit::device {

template <typename Rescale>
struct TileRescale {
  // The tile's scale, of both warps' rows, which meet at `barrier`. `slots` are two words: reads of
  // a tile before must have ended.
  MOEJIT_DEVICE static uint32_t scale_of_tile(const RowScalePair& scale, const ByteBlock& block,
                                              ptx::SharedPtr<uint32_t> slots, int32_t barrier) {
    uint32_t counts = 0;  // bits 0 and 1: whether this lane's rows do
    if constexpr (Rescale::kPassesOverZeroRows) {
      counts = nonzero_rows_of_lane(block);
    }
    const uint32_t own = larger(rank_of(scale.bits[0], (counts & 1u) != 0),
                                rank_of(scale.bits[1], (counts & 2u) != 0));
    const uint32_t of_warp = largest_rank(own);
    if (ptx::lane_index() == 0) ptx::store(slots + ptx::warp_index() % 2, of_warp);
    ptx::sync_named(barrier, 64);
    return larger(ptx::load(slots), ptx::load(slots + 1)) & 0x7fffffffu;
  }

  // Divides each row of the block by the power of two between its scale and the tile's.
  template <typename Flushed>
  MOEJIT_DEVICE static void rescale(ByteBlock& block, const RowScalePair& scale,
                                    uint32_t tile_scale, Flushed& flushed) {
    const uint32_t own = Rescale::pack(shift_between(scale.bits[0], tile_scale),
                                       shift_between(scale.bits[1], tile_scale));
#pragma unroll
    for (int32_t i = 0; i < kBlockBytes / 2; ++i) {
      const uint32_t packed = shuffle_in_row_group(own, i);
      rescale_row<0>(block.row[2 * i], packed, flushed);
      rescale_row<1>(block.row[2 * i + 1], packed, flushed);
    }
  }

 private:
  // Bits 0 and 1: whether the rows 2l and 2l + 1 of the warp's, l this lane, hold something else
  // than zeros.
  MOEJIT_DEVICE static uint32_t nonzero_rows_of_lane(const ByteBlock& block) {
    uint32_t rows = nonzero_rows(block);
    // To the eight lanes of a group of rows: these exchanges keep row_group_of().
    rows |= ptx::shuffle_xor(rows, 4);
    rows |= ptx::shuffle_xor(rows, 8 | 1);
    rows |= ptx::shuffle_xor(rows, 16 | 2);
    // The result also goes to the lane whose scales they are: lane g has group g, for g below 4.
    const int32_t lane = ptx::lane_index();
    return ptx::shuffle(rows, lane / 8) >> (2 * (lane % 8));
  }

  template <int32_t kRow, typename Flushed>
  MOEJIT_DEVICE static void rescale_row(Bytes16& bytes, uint32_t packed, Flushed& flushed) {
#pragma unroll
    for (int32_t w = 0; w < 4; ++w) {
      const uint32_t before = bytes.word[w];
      bytes.word[w] = Rescale::template apply<kRow>(before, packed);
      flushed.add(before, bytes.word[w]);
    }
  }
};

}  // namespace moejit::device
