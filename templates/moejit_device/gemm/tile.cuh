// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the parts of a grouped GEMM tell each other: the tile of D that a CTA works on, how its
// warps divide it, and where a lane's accumulators lie in it.

#include "moejit_device/core/integer.cuh"
#include "moejit_device/ptx/thread.cuh"

namespace moejit::device {

// The matrices of all groups: D[rows, kN] = A[rows, kK] * B[group][kN, kK]^T. The columns of D are
// kSections parts of kSectionN; tiles and B's scales restart at each.
template <int32_t kLocalExpertsValue, int32_t kSectionsValue, int32_t kSectionNValue,
          int32_t kKValue>
struct GemmProblem {
  static constexpr int32_t kLocalExperts = kLocalExpertsValue;
  static constexpr int32_t kSections = kSectionsValue;
  static constexpr int32_t kSectionN = kSectionNValue;
  static constexpr int32_t kK = kKValue;
  static constexpr int32_t kN = kSections * kSectionN;
  static_assert(kSectionN % 16 == 0, "columns are stored 16 bytes at a time");
  static_assert(kK % 16 == 0, "rows of A and B are copied 16 bytes at a time");
};

// A CTA's tile and its division among warps: kWarpsM x kWarpsN warps, row-major.
template <int32_t kTileMValue, int32_t kTileNValue, int32_t kTileKValue, int32_t kWarpsMValue,
          int32_t kWarpsNValue>
struct GemmTileShape {
  static constexpr int32_t kTileM = kTileMValue;
  static constexpr int32_t kTileN = kTileNValue;
  static constexpr int32_t kTileK = kTileKValue;
  static constexpr int32_t kWarpsM = kWarpsMValue;
  static constexpr int32_t kWarpsN = kWarpsNValue;
  static constexpr int32_t kThreads = 32 * kWarpsM * kWarpsN;
  static constexpr int32_t kWarpM = kTileM / kWarpsM;
  static constexpr int32_t kWarpN = kTileN / kWarpsN;
  static constexpr int32_t kFragmentsM = kWarpM / 16;
  static constexpr int32_t kFragmentsN = kWarpN / 8;
  static_assert(kTileM % kWarpsM == 0 && kWarpM % 16 == 0, "a warp takes whole 16-row fragments");
  static_assert(kTileN % kWarpsN == 0 && kWarpN % 32 == 0, "a warp stores 32 columns at a time");
};

// One tile of D. The group's rows end inside or beyond it; rows from `rows` on are pad rows, rows
// from `padded_rows` on belong to the next group or to nobody.
struct GemmTile {
  int32_t group;
  int32_t first_row;     // in A and D
  int32_t rows;          // real rows, 0 to tile_m; 0 where the tile has nothing but pad rows
  int32_t padded_rows;   // real and pad rows, 1 to tile_m
  int32_t n_tile;        // which of the group's column tiles; also the row of its scales in B's
  int32_t first_column;  // in D
  int32_t columns;       // columns of the section in this tile, multiple of 16
};

// A lane's share of a tile, in the order of mma_m16n8k32's results: value[i][j] holds
//   [0], [1]: row 16i + lane / 4,     columns 8j + 2 * (lane % 4) and the next
//   [2], [3]: row 16i + lane / 4 + 8, the same columns
// counted from the warp's corner.
template <typename Shape>
struct Accumulators {
  float value[Shape::kFragmentsM][Shape::kFragmentsN][4];
};

// Corner of this warp's part, within the tile.
template <typename Shape>
MOEJIT_DEVICE int32_t warp_row() {
  return ptx::warp_index() / Shape::kWarpsN * Shape::kWarpM;
}
template <typename Shape>
MOEJIT_DEVICE int32_t warp_column() {
  return ptx::warp_index() % Shape::kWarpsN * Shape::kWarpN;
}

}  // namespace moejit::device
