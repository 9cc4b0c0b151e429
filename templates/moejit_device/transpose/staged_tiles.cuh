// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tiles of bf16 in shared memory, 128 rows by 128 columns each, row after row. Eight lanes take a
// row segment as in the row chain, two warps 64 columns as in the column-wise cast. No access meets
// a bank twice: rows are 256 bytes, and eight lanes take 128 of them.

#include "moejit_device/core/segment.cuh"
#include "moejit_device/transpose/value_block.cuh"

namespace moejit::device {

template <int32_t kTilesValue>
struct StagedTiles {
  static constexpr int32_t kTiles = kTilesValue;
  static constexpr int32_t kRowRuns = 16;  // of 16 bytes
  static constexpr int32_t kTileBytes = 128 * kRowRuns * 16;
  static constexpr int32_t kBytes = kTiles * kTileBytes;

  // Returns the place of 16 bytes of a row, `run` of kRowRuns.
  MOEJIT_DEVICE static ptx::SharedPtr<Bytes16> at(int32_t tile, int32_t row, int32_t run) {
    return ptx::shared<Bytes16>(static_cast<uint32_t>(tile * kTileBytes)) + (row * kRowRuns + run);
  }
  // This lane's runs of a segment, which is a whole row of the tile.
  MOEJIT_DEVICE static Bf16Segment load(int32_t tile, int32_t row) {
    const int32_t lane = segment_lane();
    return {{ptx::load(at(tile, row, lane)), ptx::load(at(tile, row, kSegmentLanes + lane))}};
  }
  MOEJIT_DEVICE static void store(int32_t tile, int32_t row, const Bf16Segment& segment) {
#pragma unroll
    for (int32_t run = 0; run < 2; ++run) {
      ptx::store(at(tile, row, run * kSegmentLanes + segment_lane()), segment.run[run]);
    }
  }
  // 16 rows of 8 columns, of which this lane's are in the half `half` of the tile's columns.
  MOEJIT_DEVICE static ValueBlock load_block(int32_t tile, int32_t row, int32_t half) {
    const auto first = at(tile, row, half * (kRowRuns / 2) + column_group_of(ptx::lane_index()));
    ValueBlock block;
#pragma unroll
    for (int32_t i = 0; i < kBlockBytes; ++i) {
      block.rows.row[i] = ptx::load(first + i * kRowRuns);
    }
    return block;
  }
};

}  // namespace moejit::device
