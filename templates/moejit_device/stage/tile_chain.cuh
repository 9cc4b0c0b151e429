// SPDX-License-Identifier: Apache-2.0
#pragma once

// The tile chain: weights in 128x128 tiles, one power-of-two scale each. A CTA holds a tile in
// registers: every eight lanes a row segment, all loads of the tile in flight at once. The only
// exchange is the largest magnitude, through shared memory.
//
// A matrix is kSections stacked parts of kSectionRows rows; tiles restart at each part. In memory
// order of their scales the tiles of all matrices are one list, dealt out to the CTAs in turn.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/stage/tile_chain.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kSections = 2;
//   constexpr int32_t kSectionRows = 2048;
//   constexpr int32_t kColumns = 7168;
//   constexpr uint32_t kEpsilonBits = 0x00000000u;  // 0
//   constexpr int32_t kThreads = 256;
//
//   using Kernel = TileChain<kSections, kSectionRows, kColumns, kEpsilonBits, kThreads>;
//
//   MOEJIT_KERNEL(kThreads, Kernel::kCtasPerSm, moejit_quantize_w1_..., TileChainParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/params/tile_chain_params.h"
#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/stage/position.cuh"

namespace moejit::device {

template <int32_t kSections, int32_t kSectionRows, int32_t kColumns, uint32_t kEpsilonBits,
          int32_t kThreads_>
struct TileChain {
  static_assert(kSections > 0 && kSectionRows > 0, "a matrix has rows");
  static_assert(kThreads_ % 32 == 0 && 128 % (kThreads_ / kSegmentLanes) == 0,
                "the threads hold a whole number of rows at a time, 128 of them in whole turns");

  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kWarps = kThreads / 32;
  static constexpr int32_t kCtasPerSm = larger(768 / kThreads, int32_t{1});
  static constexpr int32_t kSharedBytes = 2 * 4 * kWarps;

  MOEJIT_DEVICE static void run(const TileChainParams& params) {
    const int64_t tiles = params.matrices * (kSections * kTileRows) * kTileColumns;
    int32_t turn = 0;
    for (int64_t tile = ptx::cta_index(); tile < tiles; tile += ptx::cta_count()) {
      const RowsOfLane rows(tile);
      Bf16Segment segment[kTurns];
#pragma unroll
      for (int32_t i = 0; i < kTurns; ++i) segment[i] = rows.fetch(params, i);
      const float amax = max_of_cta(max_of(segment), turn);
      const BlockScale scale = e4m3_scale_from_amax<kEpsilonBits>(amax);
#pragma unroll
      for (int32_t i = 0; i < kTurns; ++i) rows.store(params, i, segment[i], scale);
      if (ptx::thread_index() == 0) {
        ptx::store(ptx::global(params.output_scale_inv) + tile, scale.scale_inv);
      }
      turn ^= 1;
    }
  }

 private:
  static constexpr int32_t kTileRows = ceil_div(kSectionRows, kSegmentColumns);
  static constexpr int32_t kTileColumns = ceil_div(kColumns, kSegmentColumns);
  static constexpr int32_t kRowsPerTurn = kThreads / kSegmentLanes;
  static constexpr int32_t kTurns = 128 / kRowsPerTurn;

  // The rows of a tile that this lane's segment takes in turn.
  struct RowsOfLane {
    int64_t first_row;   // of this lane, in the stack of all sections of all matrices
    int32_t rows_below;  // rows of the section from first_row on
    int32_t tile_column;

    MOEJIT_DEVICE explicit RowsOfLane(int64_t tile) {
      const int64_t tile_row_of_all = tile / kTileColumns;
      const int64_t section = tile_row_of_all / kTileRows;
      const int32_t row = static_cast<int32_t>(tile_row_of_all - section * kTileRows) * 128 +
                          ptx::thread_index() / kSegmentLanes;
      tile_column = static_cast<int32_t>(tile - tile_row_of_all * kTileColumns);
      first_row = section * kSectionRows + row;
      rows_below = kSectionRows - row;
    }

    MOEJIT_DEVICE SegmentPosition<kColumns> position(int32_t turn) const {
      const int32_t distance = turn * kRowsPerTurn;
      const RowKind kind = distance < rows_below ? RowKind::kReal : RowKind::kAbsent;
      return {first_row + distance, tile_column, kind};
    }
    MOEJIT_DEVICE Bf16Segment fetch(const TileChainParams& params, int32_t turn) const {
      const SegmentPosition<kColumns> at = position(turn);
      return fetch_runs(ptx::global(params.input), at, at.row, at.is_real());
    }
    MOEJIT_DEVICE void store(const TileChainParams& params, int32_t turn,
                             const Bf16Segment& segment, const BlockScale& scale) const {
      const QuantizedSegment quantized = quantize_segment(unpack_bf16(segment), scale);
      store_bytes(ptx::global(params.output), position(turn), quantized.bytes);
    }
  };

  MOEJIT_DEVICE static float max_of(const Bf16Segment (&segment)[kTurns]) {
    float amax = 0.0f;
#pragma unroll
    for (int32_t i = 0; i < kTurns; ++i) {
      amax = max_magnitude<kLaneColumns>(unpack_bf16(segment[i]).value, amax);
    }
    return amax;
  }

  // The largest value of all threads. Two sets of slots take turns, so that one barrier a tile is
  // enough: it orders this tile's writes before its reads, and those of the tile before, which
  // used the other set, before the next tile's writes.
  MOEJIT_DEVICE static float max_of_cta(float value, int32_t turn) {
#pragma unroll
    for (int32_t mask = 16; mask > 0; mask /= 2) {
      value = ptx::max_number(value, ptx::shuffle_xor(value, mask));
    }
    const auto slots = ptx::shared<float>(0) + turn * kWarps;
    if (ptx::lane_index() == 0) ptx::store(slots + ptx::warp_index(), value);
    ptx::sync_cta();
#pragma unroll
    for (int32_t w = 0; w < kWarps; ++w) value = ptx::max_number(value, ptx::load(slots + w));
    return value;
  }
};

}  // namespace moejit::device
