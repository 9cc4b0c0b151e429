// SPDX-License-Identifier: Apache-2.0
#pragma once

// Decides which tile a CTA computes next in a row-grouped GEMM: rows of A and D belong to groups,
// and each group has its own B. Group sizes are known on the device only, so the producer warp of
// every CTA walks over the groups itself: CTA c of C takes the tiles c, c + C, c + 2C, ... of one
// fixed order. Which CTA computes a tile does not change its value, so results do not depend on C.
//
// The order: groups ascending; in a group, bands of up to kBandTiles row tiles; in a band, columns
// ascending and rows innermost. With 16, the CTAs that run together share about as many row tiles
// of A as column tiles of B, and a small group reads each part of B once.
//
// CTAs of a cluster take row tiles below each other: what is said of row tiles and of CTAs here
// then holds for the tiles of a cluster together, and for clusters.
//
// A warp looks at 32 groups at once: lane i holds the number of row tiles up to and including the
// window's group i, so finding a tile's group is one ballot, and 512 experts are 16 steps in all.

#include "moejit_device/gemm/groups.cuh"
#include "moejit_device/gemm/tile.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

// D[rows, kSections * kSectionN] = A[rows, kK] * B[group][kSections * kSectionN, kK]^T. A step of
// the contraction is kStepElements.
template <int32_t kGroupsValue, int32_t kSectionsValue, int32_t kSectionNValue, int32_t kKValue,
          int32_t kStepElementsValue>
struct RowGroupProblem {
  static constexpr int32_t kGroups = kGroupsValue;
  static constexpr int32_t kSections = kSectionsValue;
  static constexpr int32_t kSectionN = kSectionNValue;
  static constexpr int32_t kK = kKValue;
  static constexpr int32_t kN = kSections * kSectionN;
  static constexpr int32_t kStepElements = kStepElementsValue;
  static constexpr int32_t kSteps = ceil_div(kK, kStepElements);
  static_assert(kSectionN % 8 == 0, "columns are stored 16 bytes at a time");
};

// GroupsValue tells how many rows groups have and where they begin.
template <typename Problem, typename Shape, int32_t kBandTiles = 16,
          typename GroupsValue = GroupsOfMemory<false>>
class RowGroupScheduler {
  static_assert(Problem::kSections % Shape::kTileSections == 0, "a tile has all its sections");
  // CTAs of a cluster have tiles below each other, or beside each other where they share A.
  static constexpr int32_t kClusterCtas = Shape::kClusterCtas;
  static constexpr int32_t kCtasBelow = Shape::kSharesA ? 1 : kClusterCtas;
  static constexpr int32_t kCtasBeside = kClusterCtas / kCtasBelow;
  static constexpr int32_t kColumnTiles =  // of a cluster
      Problem::kSections / Shape::kTileSections * Shape::kColumnTiles / kCtasBeside;
  static constexpr int32_t kClusterRows = kCtasBelow * Shape::kRows;
  static constexpr int32_t kBand = kBandTiles / kCtasBelow;
  static_assert(kBand >= 1, "a band has row tiles");

 public:
  using Groups = GroupsValue;
  // Steps of every tile that has any; 0 would mean that tiles differ.
  static constexpr int32_t kSteps = Problem::kSteps;
  static constexpr int32_t kGroups = Problem::kGroups;
  static constexpr int32_t kColumns = Problem::kN;

  // All lanes of a warp. Groups that are counted in shared memory lie from `first_byte` on.
  template <typename Params>
  MOEJIT_DEVICE explicit RowGroupScheduler(const Params& params, uint32_t first_byte = 0)
      : groups_(params, first_byte), next_tile_(ptx::cta_index() / kClusterCtas) {
    load_window();
  }

  // This CTA's next tile, or one whose group is -1. All lanes call together and get the same.
  MOEJIT_DEVICE GemmTile next() {
    GemmTile tile = {};
    tile.group = -1;
    // Tiles of a row of tiles follow each other, so counting row tiles is enough to find a group.
    const int32_t row_tile = static_cast<int32_t>(next_tile_ / kColumnTiles);
    int32_t window_tiles = ptx::shuffle(lane_end_, 31);
    while (row_tile - window_start_ >= window_tiles) {
      if (window_group_ + 32 >= Problem::kGroups) return tile;
      window_start_ += window_tiles;
      window_group_ += 32;
      load_window();
      window_tiles = ptx::shuffle(lane_end_, 31);
    }
    const uint32_t groups_before = ptx::ballot(lane_end_ <= row_tile - window_start_);
    const int32_t lane = ptx::population_count(groups_before);
    const int32_t end_before = ptx::shuffle(lane_end_, larger(lane - 1, 0));
    const int32_t group_start = window_start_ + (lane == 0 ? 0 : end_before);
    const int32_t index =
        static_cast<int32_t>(next_tile_ - static_cast<int64_t>(group_start) * kColumnTiles);
    next_tile_ += ptx::cta_count() / kClusterCtas;
    return tile_of_group(window_group_ + lane, index);
  }

 private:
  MOEJIT_DEVICE void load_window() {
    const int32_t group = window_group_ + ptx::lane_index();
    int32_t tiles = 0;
    if (group < Problem::kGroups) {
      const int32_t padded = groups_.begin(group + 1) - groups_.begin(group);
      tiles = row_tiles(groups_.count(group), padded);
    }
#pragma unroll
    for (int32_t distance = 1; distance < 32; distance *= 2) {
      const int32_t below = ptx::shuffle_up(tiles, distance);
      if (ptx::lane_index() >= distance) tiles += below;
    }
    lane_end_ = tiles;
  }

  // Tiles for the rows of a group. Where pad rows have none of their own, they belong to the last.
  MOEJIT_DEVICE static int32_t row_tiles(int32_t count, int32_t padded) {
    if constexpr (Shape::kHasPadTiles) return ceil_div(padded, kClusterRows);
    return ceil_div(larger(count, smaller(padded, 1)), Shape::kRows);
  }
  // Returns the padded rows of a tile, given how many real and padded rows the group has from the
  // tile's first row on.
  MOEJIT_DEVICE static int32_t padded_rows(int32_t count, int32_t padded) {
    if constexpr (kCtasBelow > 1) return larger(smaller(padded, Shape::kRows), 0);
    if constexpr (Shape::kHasPadTiles) return smaller(padded, Shape::kRows);
    return count > Shape::kRows ? Shape::kRows : padded;
  }

  MOEJIT_DEVICE GemmTile tile_of_group(int32_t group, int32_t index) const {
    const int32_t start = groups_.begin(group);
    const int32_t padded = groups_.begin(group + 1) - start;
    const int32_t count = groups_.count(group);
    const int32_t band = index / (kBand * kColumnTiles);
    const int32_t in_band = index % (kBand * kColumnTiles);
    const int32_t band_rows = smaller(row_tiles(count, padded) - band * kBand, kBand);
    const int32_t column_tile = in_band / band_rows * kCtasBeside + ptx::cta_index() % kCtasBeside;
    const int32_t first_row = (band * kBand + in_band % band_rows) * kClusterRows;
    const int32_t row = first_row + ptx::cta_index() % kCtasBelow * Shape::kRows;
    const int32_t section = column_tile / Shape::kColumnTiles * Shape::kTileSections;
    const int32_t column = Shape::column(column_tile % Shape::kColumnTiles);
    const int32_t rows = larger(smaller(count - row, Shape::kRows), 0);
    return {.group = group,
            .a_row = start + row,
            .b_row = group * Problem::kN + section * Problem::kSectionN + column,
            .k_begin = 0,
            .k_steps = count > first_row ? Problem::kSteps : 0,
            .d_row = start + row,
            .rows = rows,
            .padded_rows = padded_rows(count - row, padded - row),
            .section = section,
            .column = column,
            .b_matrix = group,
            .d_matrix = 0};
  }

  Groups groups_;
  int64_t next_tile_;
  int32_t window_group_ = 0;  // the window is groups [window_group_, window_group_ + 32)
  int32_t window_start_ = 0;  // row tiles of all groups before it
  int32_t lane_end_ = 0;      // row tiles of the window's groups up to this lane's, inclusive
};

}  // namespace moejit::device
