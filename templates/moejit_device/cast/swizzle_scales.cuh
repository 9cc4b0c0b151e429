// SPDX-License-Identifier: Apache-2.0
#pragma once

// Scales in the order of Blackwell's GEMMs: params/swizzle_scales_params.h describes it. A thread
// makes one word of a tile, the four scales of a row, for eight tiles side by side.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/cast/swizzle_scales.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kGroups = 8;
//   constexpr int32_t kColumns = 7168;
//
//   using Kernel = SwizzleScales<kGroups, kColumns, ScalesOfRows<kColumns>>;
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_swizzle_..., SwizzleScalesParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/map/call_tokens.cuh"
#include "moejit_device/params/swizzle_scales_params.h"
#include "moejit_device/transpose/output_groups.cuh"

namespace moejit::device {

// The tiles of 128 tokens.
struct ScaleTiles {
  RowTile rows;
  int64_t first;  // tile of the group, over 128 columns
  int32_t index;  // of these tokens among the group's tiles of tokens
  int32_t count;  // of these
};

// A row of a tile is a token, with the scales of four groups of its columns.
template <int32_t kColumns, int32_t kGroup = 32>
struct ScalesOfRows {
  static constexpr int32_t kTiles = ceil_div(kColumns, int32_t{128}) * (32 / kGroup);

  MOEJIT_DEVICE static uint32_t load(const SwizzleScalesParams& params, const ScaleTiles& tiles,
                                     int32_t row, int32_t tile) {
    if (row >= tiles.rows.count) return 0;
    const auto words = ptx::as<const uint32_t>(ptx::global(params.input));
    return ptx::load(words + ((tiles.rows.first + row) * kTiles + tile));
  }
  MOEJIT_DEVICE static int64_t place(const ScaleTiles& tiles, int32_t tile) {
    return (tiles.first + tiles.index) * kTiles + tile;
  }
};

// A row of a tile is a column, with its scales for 128 tokens.
template <int32_t kColumns>
struct ScalesOfColumns {
  static constexpr int32_t kTiles = ceil_div(kColumns, int32_t{128});

  MOEJIT_DEVICE static uint32_t load(const SwizzleScalesParams& params, const ScaleTiles& tiles,
                                     int32_t row, int32_t tile) {
    const int32_t column = tile * 128 + row;
    const auto scales = ptx::global(params.input) + (tiles.rows.first / 32 * kColumns + column);
    uint32_t word = 0;
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) {
      if (column < kColumns && 32 * i < tiles.rows.count) {
        word |= static_cast<uint32_t>(ptx::load(scales + i * kColumns)) << (8 * i);
      }
    }
    return word;
  }
  MOEJIT_DEVICE static int64_t place(const ScaleTiles& tiles, int32_t tile) {
    return tiles.first * kTiles + int64_t{tile} * tiles.count + tiles.index;
  }
};

// A row of a tile is a column, with its scales for 64 tokens, groups of 16, which lie side by side.
template <int32_t kColumns>
struct ScalesOfTransposedColumns {
  static constexpr int32_t kTiles = 2 * ceil_div(kColumns, int32_t{128});

  MOEJIT_DEVICE static uint32_t load(const SwizzleScalesParams& params, const ScaleTiles& tiles,
                                     int32_t row, int32_t tile) {
    const int32_t column = tile / 2 * 128 + row, first = tile % 2 * 64;
    const auto scales = ptx::global(params.input) +
                        (column * (params.pitch / 16) + (tiles.rows.first + first) / 16);
    uint32_t word = 0;
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) {
      if (column < kColumns && first + 16 * i < tiles.rows.count) {
        word |= static_cast<uint32_t>(ptx::load(scales + i)) << (8 * i);
      }
    }
    return word;
  }
  MOEJIT_DEVICE static int64_t place(const ScaleTiles& tiles, int32_t tile) {
    return tiles.first * kTiles + 2 * (int64_t{tile / 2} * tiles.count + tiles.index) + tile % 2;
  }
};

template <int32_t kGroups, int32_t kColumns, typename Scales>
struct SwizzleScales {
  static_assert(kColumns > 0 && kColumns % 16 == 0, "as the matrices have them");

  static constexpr int32_t kThreads = 128;  // a word of a tile each
  static constexpr int32_t kSharedBytes = 0;
  static constexpr int32_t kCtasPerSm = 8;
  static constexpr int32_t kBandTiles = 8;  // that a CTA makes side by side
  static constexpr int32_t kBands = ceil_div(Scales::kTiles, kBandTiles);

  // The grid has a CTA for each 128 output rows and band.
  MOEJIT_DEVICE static void run(const SwizzleScalesParams& params) {
    if (has_other_tokens(params.call)) return;
    const int64_t tile_row = ptx::cta_index() / kBands;
    const int32_t band = ptx::cta_index() % kBands;
    if (tile_row * 128 >= params.output_columns) return;
    const RowTile rows = find_row_tile<kGroups>(params, tile_row * 128);
    if (rows.is_past_the_end) return;
    const auto starts = ptx::global(params.output_offs) + rows.group;
    const int32_t begin = ptx::load(starts) / 128, end = ptx::load(starts + 1) / 128;
    const ScaleTiles tiles{.rows = rows,
                           .first = begin,
                           .index = static_cast<int32_t>(tile_row) - begin,
                           .count = end - begin};
    const int32_t word = ptx::thread_index();
    const int32_t row = word % 4 * 32 + word / 4;
    const auto output = ptx::as<uint32_t>(ptx::global(params.output)) + word;
    uint32_t value[kBandTiles];
#pragma unroll
    for (int32_t i = 0; i < kBandTiles; ++i) {
      const int32_t tile = band * kBandTiles + i;
      value[i] = tile < Scales::kTiles ? Scales::load(params, tiles, row, tile) : 0u;
    }
#pragma unroll
    for (int32_t i = 0; i < kBandTiles; ++i) {
      const int32_t tile = band * kBandTiles + i;
      if (tile < Scales::kTiles) ptx::store(output + Scales::place(tiles, tile) * 128, value[i]);
    }
  }
};

}  // namespace moejit::device
