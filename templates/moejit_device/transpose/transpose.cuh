// SPDX-License-Identifier: Apache-2.0
#pragma once

// The scaling-aware transpose: rows [P, C] with 1x128 scales become columns [C, Pc] with one scale
// for each 128x128 tile, without quantising anew. Each row's values are divided by the power of two
// that is between its scale and the tile's. The rows may be those of tokens, gathered on the way.
//
// Memory-bound, so again what matters is bytes in flight and full lines. Two warps hold a tile:
// each thread 16 rows of 16 bytes, which it fetches with 16 loads that are all in flight at once,
// rescales while they lie as rows, transposes in its registers, and stores as 16 runs of 16 bytes.
// Eight lanes read a whole line of a row; the four row groups of a warp write 64 contiguous bytes
// of a column and the other warp the other 64. Data never pass through shared memory: the two warps
// only exchange the largest scale of their rows.
//
//   lane l of warp w:  rows [64w + 16(l/8), + 16), columns [16(l%8), + 16), scales of the rows
//                      64w + 2l and 64w + 2l + 1
//
// The tiles form one list that pairs of warps take in turn: bands of kBandTiles tiles of rows; in a
// band, columns of the input ascending and rows innermost. CTAs that run together then read whole
// rows, use every sector of scales, and write long runs of columns.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/transpose/transpose.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kGroups = 8;
//   constexpr int32_t kColumns = 7168;
//   constexpr int32_t kBandTiles = 1;
//   constexpr int32_t kThreads = 256;
//
//   using Kernel = Transpose<kGroups, kColumns, RowsInOrder<kColumns>, IdealRescale<E4m3>,
//                            IgnoreFlushed, kBandTiles, kThreads>;
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_transpose_..., TransposeParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/transpose/flushed.cuh"
#include "moejit_device/transpose/output_groups.cuh"
#include "moejit_device/transpose/rescale.cuh"
#include "moejit_device/transpose/row_source.cuh"
#include "moejit_device/transpose/tile_rescale.cuh"

namespace moejit::device {

template <int32_t kGroups, int32_t kColumns, typename Source, typename Rescale, typename Flushed,
          int32_t kBandTiles, int32_t kThreads_>
struct Transpose {
  static_assert(kColumns > 0 && kColumns % 16 == 0, "rows begin at multiples of 16 bytes");
  static_assert(kThreads_ % 64 == 0 && kThreads_ / 64 <= 15,
                "two warps hold a tile and meet at a barrier of their own");

  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kPairs = kThreads / 64;
  static constexpr int32_t kSharedBytes = kPairs * 2 * 2 * 4;
  // For the launch bounds: leaves a thread the registers that its block and its work need.
  static constexpr int32_t kCtasPerSm = larger(Flushed::kThreadsPerSm / kThreads, int32_t{1});

  MOEJIT_DEVICE static void run(const TransposeParams& params) {
    constexpr int32_t kTilesOfBand = kBandTiles * kTilesPerRow;
    const int64_t tile_rows = params.output_columns / 128;
    const int64_t tiles = ceil_div(tile_rows, int64_t{kBandTiles}) * kTilesOfBand;
    const int64_t stride = int64_t{ptx::cta_count()} * kPairs;
    Flushed flushed;
    int32_t turn = 0;
    for (int64_t tile = int64_t{ptx::cta_index()} * kPairs + pair(); tile < tiles; tile += stride) {
      const int64_t band = tile / kTilesOfBand;
      const int32_t in_band = static_cast<int32_t>(tile - band * kTilesOfBand);
      const int64_t tile_row = band * kBandTiles + in_band % kBandTiles;
      const RowTile rows = find_row_tile<kGroups>(params, tile_row * 128);
      if (rows.is_past_the_end && in_band % kBandTiles == 0) break;
      if (rows.count <= 0 || tile_row >= tile_rows) continue;
      move_tile(params, rows, tile_row, in_band / kBandTiles, turn, flushed);
      turn ^= 1;
    }
    flushed.finish(params);
  }

 private:
  static constexpr int32_t kTilesPerRow = ceil_div(kColumns, int32_t{128});

  // Of warps in the CTA; their barrier is one of its number.
  MOEJIT_DEVICE static int32_t pair() { return kPairs == 1 ? 0 : ptx::warp_index() / 2; }

  MOEJIT_DEVICE static void move_tile(const TransposeParams& params, const RowTile& rows,
                                      int64_t tile_row, int32_t tile_column, int32_t turn,
                                      Flushed& flushed) {
    const int32_t lane = ptx::lane_index();
    const int32_t half = ptx::warp_index() % 2;
    const int32_t row = half * 64 + lane / 8 * kBlockBytes;
    const int32_t column = tile_column * 128 + lane % 8 * kBlockBytes;
    const bool has_column = kColumns % 128 == 0 || column < kColumns;

    const Source source(params, rows.first + half * 64, rows.count - half * 64);
    const RowScalePair scale = source.fetch_scales(params, tile_column);
    ByteBlock block = source.fetch_block(params, column, has_column);

    check_scales(params, scale);
    // Two sets of slots take turns, so that one barrier a tile is enough: it orders this tile's
    // writes before its reads, and those of the tile before, which used the other set, before the
    // next tile's writes.
    const auto slots = ptx::shared<uint32_t>(0) + (pair() * 4 + turn * 2);
    const uint32_t tile_scale =
        TileRescale<Rescale>::scale_of_tile(scale, block, slots, 1 + pair());
    TileRescale<Rescale>::rescale(block, scale, tile_scale, flushed);

    if (has_column) {
      store_columns(
          block,
          ptx::global(params.output) + (column * params.output_columns + (tile_row * 128 + row)),
          params.output_columns);
    }
    if (lane + 32 * half == 0) {
      ptx::store(ptx::global(params.output_scale_inv) +
                     (tile_column * (params.output_columns / 128) + tile_row),
                 ptx::float_from_bits(tile_scale));
    }
  }
};

}  // namespace moejit::device
