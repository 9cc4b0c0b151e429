// SPDX-License-Identifier: Apache-2.0
#pragma once

// The scaling-aware transpose: rows [P, C] with 1x128 scales become columns, with one scale for
// each 128x128 tile, without quantizing again. The columns lie in blocks of 128, [Pc / 128, C,
// 128]: a tile is 16 KB in one piece. Each row's values are divided by the power of two that is
// between its scale and the tile's. The rows may be rows of tokens, gathered on the way.
//
// Memory-bound, so again what matters is bytes in flight and full lines. Two warps hold a tile:
// each thread 16 rows of 16 bytes, which it fetches with 16 loads that are all in flight at once,
// rescales while they lie as rows, transposes in its registers, and stores as 16 runs of 16 bytes.
// The eight lanes of a group of rows read a whole line of each; the four groups of a warp write 64
// contiguous bytes of a column and the other warp the other 64. Data never pass through shared
// memory: the two warps only exchange the largest scale of their rows.
//
//   lane l of warp w:  rows [64w + 16g, + 16) with g = (l xor l/8) % 4, columns [16(l%8), + 16),
//                      scales of the rows 64w + 2l and 64w + 2l + 1
//
// A pair of warps has one tile, along a band of the row of tiles first: CTAs that run together read
// neighboring columns and write neighboring tiles. No pair takes a second tile: the registers for
// that are missed where 16 loads are in flight, by a sixth of the speed.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/transpose/transpose.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kGroups = 8;
//   constexpr int32_t kColumns = 7168;
//   constexpr int32_t kThreads = 128;
//
//   using Kernel = Transpose<kGroups, kColumns, RowsInOrder<kColumns>, IdealRescale<E4m3>,
//                            IgnoreFlushed, kThreads>;
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_transpose_..., TransposeParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/map/call_tokens.cuh"
#include "moejit_device/transpose/flushed.cuh"
#include "moejit_device/transpose/output_groups.cuh"
#include "moejit_device/transpose/rescale.cuh"
#include "moejit_device/transpose/row_source.cuh"
#include "moejit_device/transpose/tile_place.cuh"
#include "moejit_device/transpose/tile_rescale.cuh"

namespace moejit::device {

template <int32_t kGroups, int32_t kColumns, typename Source, typename Rescale, typename Flushed,
          int32_t kThreads_>
struct Transpose {
  static_assert(kColumns > 0 && kColumns % 16 == 0, "rows begin at multiples of 16 bytes");
  static_assert(kThreads_ % 64 == 0 && kThreads_ / 64 <= 15,
                "two warps hold a tile and meet at a barrier of their own");

  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kPairs = kThreads / 64;
  static constexpr int32_t kSharedBytes = kPairs * 2 * 4;
  // For the launch bounds: leaves a thread the registers that its block and its work need.
  static constexpr int32_t kCtasPerSm = larger(Flushed::kThreadsPerSm / kThreads, int32_t{1});

  // The grid has at least one CTA for every kPairs tiles of the rows of tiles that the call may
  // fill.
  MOEJIT_DEVICE static void run(const TransposeParams& params) {
    if (has_other_tokens(params.call)) return;
    const Place tile =
        Place::of(static_cast<uint32_t>(ptx::cta_index()) * kPairs + static_cast<uint32_t>(pair()),
                  static_cast<uint32_t>(ptx::cta_count()) * kPairs,
                  static_cast<uint32_t>(params.output_columns / 128));
    if (!tile.exists()) return;
    const RowTile rows = find_row_tile<kGroups>(params, tile.row * 128);
    if (rows.count <= 0) return;
    if constexpr (requires { Rescale::kKeepsBytes; }) {
      move_bytes(params, rows, tile.row, tile.column);
    } else {
      move_tile(params, rows, tile.row, tile.column);
    }
  }

 private:
  using Place = TilePlace<ceil_div(kColumns, int32_t{128}), Source::kBandTiles>;

  // Returns the index of this pair of warps in the CTA, from which their barrier's number follows.
  MOEJIT_DEVICE static int32_t pair() { return kPairs == 1 ? 0 : ptx::warp_index() / 2; }

  MOEJIT_DEVICE static void move_bytes(const TransposeParams& params, const RowTile& rows,
                                       int64_t tile_row, int32_t tile_column) {
    const int32_t half = ptx::warp_index() % 2;
    const int32_t row = half * 64 + block_row();
    const int32_t column = tile_column * 128 + block_column();
    if (column >= kColumns) return;
    const Source source(params, rows.first + half * 64, rows.count - half * 64);
    store_columns(source.fetch_block(params, column, true),
                  ptx::global(params.output) + ((tile_row * kColumns + column) * 128 + row));
  }

  MOEJIT_DEVICE static void move_tile(const TransposeParams& params, const RowTile& rows,
                                      int64_t tile_row, int32_t tile_column) {
    const int32_t lane = ptx::lane_index();
    const int32_t half = ptx::warp_index() % 2;
    const int32_t row = half * 64 + block_row();
    const int32_t column = tile_column * 128 + block_column();
    const bool has_column = kColumns % 128 == 0 || column < kColumns;

    const Source source(params, rows.first + half * 64, rows.count - half * 64);
    const RowScalePair scale = source.fetch_scales(params, tile_column);
    ByteBlock block = source.fetch_block(params, column, has_column);

    check_scales(params, scale);
    const auto slots = ptx::shared<uint32_t>(0) + pair() * 2;
    const uint32_t tile_scale =
        TileRescale<Rescale>::scale_of_tile(scale, block, slots, 1 + pair());
    Flushed flushed;
    TileRescale<Rescale>::rescale(block, scale, tile_scale, flushed);

    if (has_column) {
      store_columns(block,
                    ptx::global(params.output) + ((tile_row * kColumns + column) * 128 + row));
    }
    if (lane + 32 * half == 0) {
      ptx::store(ptx::global(params.output_scale_inv) +
                     (tile_column * (params.output_columns / 128) + tile_row),
                 ptx::float_from_bits(tile_scale));
    }
    flushed.finish(params);
  }
};

}  // namespace moejit::device
