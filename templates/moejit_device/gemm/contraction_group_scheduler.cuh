// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which tile comes next where groups divide the contraction: each group has a D of its own, all of
// the same size, and the number of steps is known on the device only. CTA c of C takes the tiles
// c, c + C, c + 2C, ... of one fixed order, so results do not depend on C.
//
// The order: groups ascending; in a group, bands of up to kBandTiles row tiles; in a band, columns
// ascending and rows innermost, as RowGroupScheduler does.
//
// CTAs of a cluster take row tiles below each other: what is said of row tiles and of CTAs here
// then holds for the tiles of a cluster together, and for clusters. Below A's last row tile there
// may be one without rows.

#include "moejit_device/gemm/tile.cuh"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

// D[e][kRows, kN] = A[kRows, columns of e] * B[kN, columns of e]^T, where rows of A come in
// kSections, each of which fills tiles of its own and has a matrix of D to itself. With
// kInterleaved the rows of these matrices alternate. A step of the contraction is kStepElements.
// Groups without columns are all zeros, or, with kSkipsEmptyGroups, have no tiles.
template <int32_t kGroupsValue, int32_t kSectionsValue, int32_t kRowsValue, int32_t kNValue,
          int32_t kStepElementsValue, bool kSkipsEmptyGroupsValue, bool kInterleavedValue = false>
struct ContractionGroupProblem {
  static constexpr int32_t kGroups = kGroupsValue;
  static constexpr int32_t kSections = kSectionsValue;
  static constexpr int32_t kRows = kRowsValue;
  static constexpr int32_t kN = kNValue;
  static constexpr int32_t kStepElements = kStepElementsValue;
  static constexpr bool kSkipsEmptyGroups = kSkipsEmptyGroupsValue;
  static constexpr bool kInterleaved = kInterleavedValue;
};

template <typename Problem, typename Shape, int32_t kBandTiles = 16>
class ContractionGroupScheduler {
  static constexpr int32_t kRowTiles = ceil_div(Problem::kRows, Shape::kRows);
  static_assert(Problem::kSections == 1 || kRowTiles % Problem::kSections == 0, "whole tiles");
  static constexpr int32_t kSectionTiles = kRowTiles / Problem::kSections;
  static constexpr int32_t kClusterCtas = Shape::kClusterCtas;
  static constexpr int32_t kClusterTiles = ceil_div(kRowTiles, kClusterCtas);
  static constexpr int32_t kTiles = kClusterTiles * Shape::kColumnTiles;  // of a group
  static constexpr int32_t kBand = kBandTiles / kClusterCtas;
  static_assert(kBand >= 1, "a band has row tiles");

 public:
  static constexpr int32_t kSteps = 0;  // tiles differ

  template <typename Params>
  MOEJIT_DEVICE explicit ContractionGroupScheduler(const Params& params)
      : counts_(ptx::global(params.counts)),
        offs_(ptx::global(params.offs)),
        tile_(ptx::cta_index() / kClusterCtas) {
    load_window();
  }

  // Returns this CTA's next tile, or one whose group is -1. All lanes call together and get the
  // same.
  MOEJIT_DEVICE GemmTile next() {
    // tile_ counts from the first group that is not passed yet.
    while (tile_ >= kTiles || !has_tiles()) {
      if (has_tiles()) tile_ -= kTiles;
      ++group_;
      if (group_ % 32 == 0) load_window();
      if (group_ >= Problem::kGroups) return no_tile();
    }
    const int32_t index = tile_;
    tile_ += ptx::cta_count() / kClusterCtas;
    return tile_of_group(index);
  }

 private:
  MOEJIT_DEVICE static GemmTile no_tile() {
    GemmTile tile = {};
    tile.group = -1;
    return tile;
  }

  // Returns whether the current group has tiles; there is none beyond the last group.
  MOEJIT_DEVICE bool has_tiles() const { return (with_tiles_ >> group_ % 32 & 1) != 0; }

  MOEJIT_DEVICE void load_window() {
    const int32_t group = group_ / 32 * 32 + ptx::lane_index();
    const bool exists = group < Problem::kGroups;
    const int32_t count = exists ? ptx::load(counts_ + group) : 0;
    with_tiles_ = ptx::ballot(Problem::kSkipsEmptyGroups ? count > 0 : exists);
  }

  // Returns how many rows a tile has from A's row `row` on.
  MOEJIT_DEVICE static int32_t rows_from(int32_t row) {
    const int32_t rows = smaller(Problem::kRows - row, Shape::kRows);
    if constexpr (kRowTiles % kClusterCtas != 0) return larger(rows, 0);
    return rows;
  }

  MOEJIT_DEVICE GemmTile tile_of_group(int32_t index) const {
    const int32_t band = index / (kBand * Shape::kColumnTiles);
    const int32_t in_band = index % (kBand * Shape::kColumnTiles);
    const int32_t band_rows = smaller(kClusterTiles - band * kBand, kBand);
    const int32_t first_tile = (band * kBand + in_band % band_rows) * kClusterCtas;
    const int32_t row_tile = first_tile + ptx::cta_index() % kClusterCtas;
    const int32_t row = row_tile * Shape::kRows;
    const int32_t section = Problem::kSections > 1 ? row_tile / kSectionTiles : 0;
    const int32_t column = Shape::column(in_band / band_rows);
    const int32_t rows = rows_from(row);
    const int32_t count = ptx::load(counts_ + group_);
    const int32_t steps = ceil_div(count, Problem::kStepElements);
    return {.group = group_,
            .a_row = row,
            .b_row = column,
            .k_begin = ptx::load(offs_ + group_),
            .k_steps = steps,
            .d_row = row - section * (kSectionTiles * Shape::kRows),
            .rows = rows,
            .padded_rows = rows,
            .section = count - (steps - 1) * Problem::kStepElements,
            .column = column,
            .b_matrix = 0,
            .d_matrix = group_ * Problem::kSections + section};
  }

  ptx::GlobalPtr<const int32_t> counts_;
  ptx::GlobalPtr<const int32_t> offs_;
  int32_t tile_;             // this CTA's next, counted from the present group's first
  int32_t group_ = 0;        // the present one
  uint32_t with_tiles_ = 0;  // bit i: group i of the present one's 32 has tiles
};

}  // namespace moejit::device
