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
      counts = nonzero_rows(block);
#pragma unroll
      for (int32_t mask = 4; mask > 0; mask /= 2) counts |= ptx::shuffle_xor(counts, mask);
      counts >>= 2 * (ptx::lane_index() % 8);
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
    uint32_t own[Rescale::kWords];
    Rescale::pack(shift_between(scale.bits[0], tile_scale),
                  shift_between(scale.bits[1], tile_scale), own);
#pragma unroll
    for (int32_t i = 0; i < kBlockBytes / 2; ++i) {
      uint32_t packed[Rescale::kWords];
#pragma unroll
      for (int32_t w = 0; w < Rescale::kWords; ++w) {
        packed[w] = ptx::shuffle_within<8>(own[w], i);
      }
      rescale_row<0>(block.row[2 * i], packed, flushed);
      rescale_row<1>(block.row[2 * i + 1], packed, flushed);
    }
  }

 private:
  template <int32_t kRow, typename Flushed>
  MOEJIT_DEVICE static void rescale_row(Bytes16& bytes, const uint32_t (&packed)[Rescale::kWords],
                                        Flushed& flushed) {
#pragma unroll
    for (int32_t w = 0; w < 4; ++w) {
      const uint32_t before = bytes.word[w];
      bytes.word[w] = Rescale::template apply<kRow>(before, packed);
      flushed.add(before, bytes.word[w]);
    }
  }
};

}  // namespace moejit::device
