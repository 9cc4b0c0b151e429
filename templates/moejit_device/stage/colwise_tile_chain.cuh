// SPDX-License-Identifier: Apache-2.0
#pragma once

// The tile chain that also writes the column-wise operand, the transposed bytes and scales, from
// one read of the weights. Groups of tiles, scales and bytes are the same as in the tile chain.
//
// 256 threads hold a tile. Eight lanes have a row segment as everywhere, and a lane has the same
// columns of four rows that follow each other: 4x4 bytes are transposed in registers, and a tile in
// shared memory brings the words of a column together. Rows leave as before, columns as 128 bytes
// that eight lanes write.
//
// If there are several sections, zeros fill up the columns of each to a multiple of 128. These
// columns are the contraction of dgrad, whose steps and scale blocks then lie in one section.
// Without rows only the columns are written.
//
// Emitted kernels look like kernels of the tile chain, but for the name of the type:
//
//   using Kernel = ColwiseTileChain<kSections, kSectionRows, kColumns, kTilesPerScale,
//                                   kEpsilonBits, kThreads>;

#include "moejit_device/core/byte_transpose.cuh"
#include "moejit_device/params/tile_chain_params.h"
#include "moejit_device/stage/position.cuh"
#include "moejit_device/stage/tile_input.cuh"
#include "moejit_device/stage/tile_scale.cuh"

namespace moejit::device {

template <int32_t kSections, int32_t kSectionRows, int32_t kColumns, int32_t kTilesPerScale,
          uint32_t kEpsilonBits, int32_t kThreads_, bool kInterleaved = false,
          typename Scale = ScaleOfTile<kEpsilonBits>, bool kSeparate = false,
          bool kWritesRows = true>
struct ColwiseTileChain {
  static_assert(kTilesPerScale > 0, "a tile has a scale");
  static_assert(kSections > 0 && kSectionRows > 0, "a matrix has rows");
  static_assert(kSectionRows % 16 == 0, "16 bytes of a column are all inside a section or outside");
  static_assert(kThreads_ == 256 * kTilesPerScale, "256 threads hold a tile, four rows a lane");

  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kWarps = kThreads / 32;
  static constexpr int32_t kCtasPerSm = larger(1024 / kThreads, int32_t{1});
  static constexpr int32_t kSharedBytes = kTilesPerScale * ByteTile::kBytes + 4 * kWarps;

  MOEJIT_DEVICE static void run(const TileChainParams& params) {
    const auto skip = ptx::global(params.skip);
    if (skip && ptx::load(skip) != 0) return;
    const int64_t groups = params.matrices * (kSections * kTileRows) * kTileGroups;
    for (int64_t group = ptx::cta_index(); group < groups; group += ptx::cta_count()) {
      const TileOfThread tile(group);
      Bf16Segment segment[kLaneRows];
#pragma unroll
      for (int32_t i = 0; i < kLaneRows; ++i) segment[i] = tile.fetch(params, i);
      const BlockScale scale = Scale::template of<kWarps>(params, tile.matrix(), slots(),
                                                          [&] { return max_magnitude(segment); });
      if constexpr (Scale::kIsStored) tile.store_scales(params, scale.scale_inv);
      Bytes16 rows[kLaneRows];
#pragma unroll
      for (int32_t i = 0; i < kLaneRows; ++i) {
        rows[i] = quantize_segment(unpack_bf16(segment[i]), scale).bytes;
        if constexpr (kWritesRows)
          store_bytes(ptx::global(params.output), tile.position(i), rows[i]);
      }
      tile.stage(rows);
      // Orders the staged tile's writes before its reads, and the reads of the slots before their
      // next writes; the barrier of the next tile's maximum orders these reads of the staged tile
      // before the writes that follow it.
      ptx::sync_cta();
      tile.store_columns(params);
    }
  }

 private:
  static constexpr int32_t kTileRows = ceil_div(kSectionRows, ByteTile::kRows);
  static constexpr int32_t kTileColumns = ceil_div(kColumns, ByteTile::kColumns);
  static constexpr int32_t kTileGroups = ceil_div(kTileColumns, kTilesPerScale);
  static constexpr int32_t kTileThreads = kThreads / kTilesPerScale;
  static constexpr int32_t kLaneRows = 4;

  MOEJIT_DEVICE static ptx::SharedPtr<float> slots() {
    return ptx::shared<float>(kTilesPerScale * ByteTile::kBytes);
  }

  // The tile that this thread belongs to, and its part of it.
  struct TileOfThread {
    int64_t section;      // of all matrices
    int32_t tile_row;     // in the section
    int32_t tile_column;  // beyond the last where a group has fewer tiles than others
    int32_t thread;       // in the tile

    MOEJIT_DEVICE explicit TileOfThread(int64_t group) {
      const int64_t tile_row_of_all = group / kTileGroups;
      section = tile_row_of_all / kTileRows;
      tile_row = static_cast<int32_t>(tile_row_of_all - section * kTileRows);
      tile_column = static_cast<int32_t>(group - tile_row_of_all * kTileGroups) * kTilesPerScale +
                    tile_of_group();
      thread = ptx::made_here(ptx::thread_index() % kTileThreads);
    }

    MOEJIT_DEVICE SegmentPosition<kColumns> position(int32_t i) const {
      const int32_t row = kLaneRows * quad() + i;
      const bool exists = row < rows() && has_tile();
      return {section * kSectionRows + first_row() + row, tile_column,
              exists ? RowKind::kReal : RowKind::kAbsent};
    }
    MOEJIT_DEVICE Bf16Segment fetch(const TileChainParams& params, int32_t i) const {
      return fetch_input<kSections, kSectionRows, kInterleaved, kSeparate>(params, position(i));
    }
    MOEJIT_DEVICE int64_t matrix() const { return section / kSections; }
    // [matrices, S, Cb] and transposed: a row of the first and a column of the second are a row of
    // tiles.
    MOEJIT_DEVICE void store_scales(const TileChainParams& params, float scale_inv) const {
      if (thread != 0 || !has_tile()) return;
      const int64_t tile_row_of_all = section * kTileRows + tile_row;
      if constexpr (kWritesRows)
        ptx::store(
            ptx::global(params.output_scale_inv) + (tile_row_of_all * kTileColumns + tile_column),
            scale_inv);
      const int64_t colwise_row = matrix() * kTileColumns + tile_column;
      ptx::store(
          ptx::global(params.output_colwise_scale_inv) +
              (colwise_row * (kSections * kTileRows) + section_of_matrix() * kTileRows + tile_row),
          scale_inv);
    }
    // This lane's 16 columns of four rows to shared memory.
    MOEJIT_DEVICE void stage(const Bytes16 (&row)[kLaneRows]) const {
      staged().store_rows(byte_column(), quad(), row);
    }
    // Stores the staged columns: eight lanes take each one.
    MOEJIT_DEVICE void store_columns(const TileChainParams& params) const {
      constexpr int32_t kColumnsAtATime = kTileThreads / 8;
      const int32_t run = thread % 8;
      if ((!kPadsSections && 16 * run >= rows()) || !has_tile()) return;
      const int32_t columns = kColumns - tile_column * ByteTile::kColumns;
      const int64_t first_column = matrix() * kColumns + tile_column * ByteTile::kColumns;
      const auto output =
          ptx::global(params.output_colwise) + (first_column_of_matrix() + 16 * run);
#pragma unroll
      for (int32_t i = 0; i < ByteTile::kColumns; i += kColumnsAtATime) {
        const int32_t column = i + thread / 8;
        if (kColumns % ByteTile::kColumns != 0 && column >= columns) return;
        ptx::store_streaming(ptx::as<Bytes16>(output + (first_column + column) * kColwiseColumns),
                             staged().load_run(column, run));
      }
    }

   private:
    static constexpr bool kPadsSections = kSections > 1;
    static constexpr int64_t kSectionColumns =
        kPadsSections ? kTileRows * ByteTile::kRows : kSectionRows;
    static constexpr int64_t kColwiseColumns = kSections * kSectionColumns;

    MOEJIT_DEVICE static int32_t tile_of_group() { return ptx::thread_index() / kTileThreads; }
    MOEJIT_DEVICE static ByteTile staged() {
      return {ptx::shared<uint32_t>(static_cast<uint32_t>(tile_of_group()) * ByteTile::kBytes)};
    }
    MOEJIT_DEVICE bool has_tile() const {
      return kTileColumns % kTilesPerScale == 0 || tile_column < kTileColumns;
    }
    // Which four rows of the tile.
    MOEJIT_DEVICE int32_t quad() const { return thread / kSegmentLanes; }
    MOEJIT_DEVICE int32_t first_row() const { return tile_row * ByteTile::kRows; }
    MOEJIT_DEVICE int32_t rows() const { return kSectionRows - first_row(); }  // from there on
    MOEJIT_DEVICE int64_t section_of_matrix() const { return section % kSections; }
    MOEJIT_DEVICE int64_t first_column_of_matrix() const {
      return section_of_matrix() * kSectionColumns + first_row();
    }
  };
};

}  // namespace moejit::device
