// SPDX-License-Identifier: Apache-2.0
#pragma once

// In which order tiles are moved: along a band of a row of tiles first, then along the same band of
// the next row, then the next band. CTAs that run together read neighboring columns and write
// neighboring tiles.

#include "moejit_device/core/integer.cuh"
#include "moejit_device/ptx/thread.cuh"

namespace moejit::device {

// A row of tiles has kTilesPerRow_, of which a band has kBandTiles_ or, the last one, what is left.
template <int32_t kTilesPerRow_, int32_t kBandTiles_>
struct TilePlace {
  static constexpr int32_t kTilesPerRow = kTilesPerRow_;

  int64_t row;
  int32_t column;

  MOEJIT_DEVICE bool exists() const { return column < kTilesPerRow; }

  // Returns the place of the tile of this number. The grid takes `grid_tiles` of them, where the
  // output has so many rows of tiles. A call with few tokens has CTAs for fewer rows than the
  // output has, and the CTAs of a band have to end where the CTAs of the next one begin.
  MOEJIT_DEVICE static TilePlace of(uint32_t tile, uint32_t grid_tiles, uint32_t output_rows) {
    constexpr uint32_t kTiles = kTilesPerRow_;
    constexpr uint32_t kBand = smaller(kBandTiles_, kTilesPerRow_);
    constexpr uint32_t kLast = kTiles - (kTiles - 1) / kBand * kBand;  // tiles of the last band
    uint32_t rows = output_rows;
    uint32_t first = 0;
    if constexpr (kBand < kTiles) {
      rows = smaller(rows, grid_tiles / kTiles);
      first = tile / larger(rows * kBand, 1u) * kBand;
      tile -= first * rows;
    }
    const bool is_last = first + kLast == kTiles;
    const uint32_t row = is_last ? tile / kLast : tile / kBand;
    const uint32_t column = first + tile - row * (is_last ? kLast : kBand);
    if (row >= rows || column >= kTiles) return {0, kTilesPerRow_};
    return {row, static_cast<int32_t>(column)};
  }
};

}  // namespace moejit::device
