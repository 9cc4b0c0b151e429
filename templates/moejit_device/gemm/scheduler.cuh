// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which tile comes next. Group sizes are known on the device only, so every CTA walks over the
// groups itself: CTA c of C takes the tiles c, c + C, c + 2C, ... of one fixed order. Which CTA
// computes a tile does not change its value, so results do not depend on C.
//
// The order: groups ascending; in a group, bands of up to 16 row tiles; in a band, columns
// ascending and rows innermost. The CTAs that run together then share about as many row tiles of
// A as column tiles of B, and a small group reads each part of B once.
//
// A warp looks at 32 groups at once: lane i holds the number of row tiles up to and including the
// window's group i, so finding a tile's group is one ballot, and 512 experts are 16 steps in all.

#include "moejit_device/gemm/tile.cuh"
#include "moejit_device/params/grouped_gemm_params.h"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

template <typename Problem, typename Shape>
class GroupedScheduler {
 public:
  static constexpr int32_t kSectionTiles = ceil_div(Problem::kSectionN, Shape::kTileN);
  static constexpr int32_t kColumnTiles = Problem::kSections * kSectionTiles;

  MOEJIT_DEVICE explicit GroupedScheduler(const GroupedGemmParams& params)
      : counts_(ptx::global(params.counts)),
        offs_(ptx::global(params.offs)),
        next_tile_(ptx::cta_index()) {
    load_window();
  }

  // Moves on to this CTA's next tile; false: there is none. All lanes of all warps call together
  // and get the same.
  MOEJIT_DEVICE bool next(GemmTile& tile) {
    // Tiles of a row of tiles follow each other, so counting row tiles is enough to find a group.
    const int32_t row_tile = static_cast<int32_t>(next_tile_ / kColumnTiles);
    int32_t window_tiles = ptx::shuffle(lane_end_, 31);
    while (row_tile - window_start_ >= window_tiles) {
      window_start_ += window_tiles;
      window_group_ += 32;
      if (window_group_ >= Problem::kLocalExperts) return false;
      load_window();
      window_tiles = ptx::shuffle(lane_end_, 31);
    }
    const uint32_t groups_before = ptx::ballot(lane_end_ <= row_tile - window_start_);
    const int32_t lane = ptx::population_count(groups_before);
    const int32_t end_before = ptx::shuffle(lane_end_, larger(lane - 1, 0));
    const int32_t group_start = window_start_ + (lane == 0 ? 0 : end_before);
    const int32_t index =
        static_cast<int32_t>(next_tile_ - static_cast<int64_t>(group_start) * kColumnTiles);
    tile = tile_of_group(window_group_ + lane, index);
    next_tile_ += ptx::cta_count();
    return true;
  }

 private:
  static constexpr int32_t kBandTiles = 16;

  MOEJIT_DEVICE void load_window() {
    const int32_t group = window_group_ + ptx::lane_index();
    int32_t tiles = 0;
    if (group < Problem::kLocalExperts) {
      tiles = ceil_div(ptx::load(offs_ + (group + 1)) - ptx::load(offs_ + group), Shape::kTileM);
    }
#pragma unroll
    for (int32_t distance = 1; distance < 32; distance *= 2) {
      const int32_t below = ptx::shuffle_up(tiles, distance);
      if (ptx::lane_index() >= distance) tiles += below;
    }
    lane_end_ = tiles;
  }

  MOEJIT_DEVICE GemmTile tile_of_group(int32_t group, int32_t index) const {
    const int32_t start = ptx::load(offs_ + group);
    const int32_t padded = ptx::load(offs_ + (group + 1)) - start;
    const int32_t count = ptx::load(counts_ + group);
    const int32_t band = index / (kBandTiles * kColumnTiles);
    const int32_t in_band = index % (kBandTiles * kColumnTiles);
    const int32_t band_rows =
        smaller(ceil_div(padded, Shape::kTileM) - band * kBandTiles, kBandTiles);
    const int32_t n_tile = in_band / band_rows;
    const int32_t row = (band * kBandTiles + in_band % band_rows) * Shape::kTileM;
    const int32_t section_column = n_tile % kSectionTiles * Shape::kTileN;
    return {.group = group,
            .first_row = start + row,
            .rows = larger(smaller(count - row, Shape::kTileM), 0),
            .padded_rows = smaller(padded - row, Shape::kTileM),
            .n_tile = n_tile,
            .first_column = n_tile / kSectionTiles * Problem::kSectionN + section_column,
            .columns = smaller(Problem::kSectionN - section_column, Shape::kTileN)};
  }

  ptx::GlobalPtr<const int32_t> counts_;
  ptx::GlobalPtr<const int32_t> offs_;
  int64_t next_tile_;
  int32_t window_group_ = 0;  // the window is groups [window_group_, window_group_ + 32)
  int32_t window_start_ = 0;  // row tiles of all groups before it
  int32_t lane_end_ = 0;      // row tiles of the window's groups up to this lane's, inclusive
};

}  // namespace moejit::device
