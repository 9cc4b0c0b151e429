// SPDX-License-Identifier: Apache-2.0
#pragma once

// The tile chain: weights in 128x128 tiles with a power-of-two scale each, which kTilesPerScale
// neighbors in a row of tiles share; fewer at the row's end. A CTA holds these tiles in registers:
// every eight lanes a row segment, all loads in flight at once. The only exchange is the largest
// magnitude, through shared memory.
//
// A matrix is kSections stacked parts of kSectionRows rows; tiles restart at each part. With
// kInterleaved the rows of the parts alternate in the input, with kSeparate each of two parts is an
// input of its own. In memory order of their scales the groups of tiles of all matrices are one
// list, dealt out to the CTAs in turn.
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
//   constexpr int32_t kTilesPerScale = 1;
//   constexpr uint32_t kEpsilonBits = 0x00000000u;  // 0
//   constexpr int32_t kThreads = 256;
//
//   using Kernel = TileChain<kSections, kSectionRows, kColumns, kTilesPerScale, kEpsilonBits,
//                            kThreads>;
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_quantize_w1_..., TileChainParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/params/tile_chain_params.h"
#include "moejit_device/stage/position.cuh"
#include "moejit_device/stage/tile_input.cuh"
#include "moejit_device/stage/tile_scale.cuh"

namespace moejit::device {

template <int32_t kSections, int32_t kSectionRows, int32_t kColumns, int32_t kTilesPerScale,
          uint32_t kEpsilonBits, int32_t kThreads_, bool kInterleaved = false,
          typename Scale = ScaleOfTile<kEpsilonBits>, bool kSeparate = false>
struct TileChain {
  static_assert(kTilesPerScale > 0, "a tile has a scale");
  static_assert(kSections > 0 && kSectionRows > 0, "a matrix has rows");
  static_assert(kThreads_ % 32 == 0 && 128 % (kThreads_ / kSegmentLanes) == 0,
                "the threads hold a whole number of rows at a time, 128 of them in whole turns");

  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kWarps = kThreads / 32;
  static constexpr int32_t kCtasPerSm = larger(768 / kThreads, int32_t{1});
  static constexpr int32_t kSharedBytes = 2 * 4 * kWarps;

  MOEJIT_DEVICE static void run(const TileChainParams& params) {
    const auto skip = ptx::global(params.skip);
    if (skip && ptx::load(skip) != 0) return;
    const int64_t groups = params.matrices * (kSections * kTileRows) * kTileGroups;
    // Two sets of slots take turns, so that one barrier a tile is enough: it also orders the reads
    // of the tile before, which used the other set, before the next tile's writes.
    int32_t turn = 0;
    for (int64_t group = ptx::cta_index(); group < groups; group += ptx::cta_count()) {
      const RowsOfLane rows(group);
      Bf16Segment segment[kSegments];
#pragma unroll
      for (int32_t i = 0; i < kSegments; ++i) segment[i] = rows.fetch(params, i);
      const auto slots = ptx::shared<float>(0) + turn * kWarps;
      const BlockScale scale =
          Scale::template of<kWarps>(params, rows.matrix(), slots, [&] { return max_of(segment); });
#pragma unroll
      for (int32_t i = 0; i < kSegments; ++i) rows.store(params, i, segment[i], scale);
      if constexpr (Scale::kIsStored) rows.store_scales(params, scale.scale_inv);
      turn ^= 1;
    }
  }

 private:
  static constexpr int32_t kTileRows = ceil_div(kSectionRows, kSegmentColumns);
  static constexpr int32_t kTileColumns = ceil_div(kColumns, kSegmentColumns);
  static constexpr int32_t kTileGroups = ceil_div(kTileColumns, kTilesPerScale);
  static constexpr int32_t kRowsPerTurn = kThreads / kSegmentLanes;
  static constexpr int32_t kTurns = 128 / kRowsPerTurn;
  static constexpr int32_t kSegments = kTurns * kTilesPerScale;  // that a lane has a share in

  // The rows of a group of tiles that this lane's segments take in turn, tile after tile.
  struct RowsOfLane {
    int64_t tile_row;    // of all matrices
    int64_t first_row;   // of this lane, in the stack of all sections of all matrices
    int32_t rows_below;  // rows of the section from first_row on
    int32_t tile_column;

    MOEJIT_DEVICE explicit RowsOfLane(int64_t group) {
      tile_row = group / kTileGroups;
      const int64_t section = tile_row / kTileRows;
      const int32_t row = static_cast<int32_t>(tile_row - section * kTileRows) * 128 +
                          ptx::thread_index() / kSegmentLanes;
      tile_column = static_cast<int32_t>(group - tile_row * kTileGroups) * kTilesPerScale;
      first_row = section * kSectionRows + row;
      rows_below = kSectionRows - row;
    }

    MOEJIT_DEVICE int64_t matrix() const { return tile_row / (kSections * kTileRows); }
    MOEJIT_DEVICE bool has_tile(int32_t i) const {
      return kTileColumns % kTilesPerScale == 0 || tile_column + i < kTileColumns;
    }
    MOEJIT_DEVICE SegmentPosition<kColumns> position(int32_t i) const {
      const int32_t distance = i % kTurns * kRowsPerTurn;
      const bool exists = distance < rows_below && has_tile(i / kTurns);
      return {first_row + distance, tile_column + i / kTurns,
              exists ? RowKind::kReal : RowKind::kAbsent};
    }
    MOEJIT_DEVICE Bf16Segment fetch(const TileChainParams& params, int32_t i) const {
      return fetch_input<kSections, kSectionRows, kInterleaved, kSeparate>(params, position(i));
    }
    MOEJIT_DEVICE void store(const TileChainParams& params, int32_t i, const Bf16Segment& segment,
                             const BlockScale& scale) const {
      const QuantizedSegment quantized = quantize_segment(unpack_bf16(segment), scale);
      store_bytes(ptx::global(params.output), position(i), quantized.bytes);
    }
    MOEJIT_DEVICE void store_scales(const TileChainParams& params, float scale_inv) const {
      const int32_t tile = ptx::thread_index();
      if (tile >= kTilesPerScale || !has_tile(tile)) return;
      ptx::store(
          ptx::global(params.output_scale_inv) + (tile_row * kTileColumns + tile_column) + tile,
          scale_inv);
    }
  };

  MOEJIT_DEVICE static float max_of(const Bf16Segment (&segment)[kSegments]) {
    float amax = 0.0f;
#pragma unroll
    for (int32_t i = 0; i < kSegments; ++i) {
      amax = max_magnitude<kLaneColumns>(unpack_bf16(segment[i]).value, amax);
    }
    return amax;
  }
};

}  // namespace moejit::device
