// SPDX-License-Identifier: Apache-2.0
#pragma once

// The shape of tiles for epilogues that join gate and up: a tile has the same 128 columns of both
// sections of D.

#include "moejit_device/gemm/tile.cuh"

namespace moejit::device {

// Tiles of 128 rows and 128 columns of each of two sections of kSectionN. A math warpgroup has 64
// rows and all columns, so that gate and up of an element are in the same thread and an output row
// is in one warp. Where a tile has no more than 64 rows, the second warpgroup has none. Clusters as
// of GemmTileShape.
template <int32_t kSectionNValue, int32_t kStagesValue, int32_t kClusterCtasValue = 1,
          bool kSharesAValue = false>
struct GatedTileShape {
  static constexpr int32_t kSectionN = kSectionNValue;
  static constexpr int32_t kStages = kStagesValue;
  static constexpr int32_t kSectionColumns = 128;
  static constexpr int32_t kTileSections = 2;
  static constexpr int32_t kTileColumns = kTileSections * kSectionColumns;
  static constexpr int32_t kColumnTiles = ceil_div(kSectionN, kSectionColumns);  // of a section
  static constexpr int32_t kRows = 128;
  static constexpr int32_t kStepBytes = 128;
  static constexpr int32_t kTileBytesB = kTileColumns * kStepBytes;  // of a step
  static constexpr int32_t kCtasPerSm = 1;
  static constexpr int32_t kMathWarpgroups = 2;
  static constexpr int32_t kThreads = (kMathWarpgroups + 1) * ptx::kWarpgroupThreads;
  static constexpr bool kIsSwapped = false;
  static constexpr bool kHasPadTiles = true;
  static constexpr bool kHasEmptyParts = true;
  static constexpr int32_t kClusterCtas = kClusterCtasValue;
  static constexpr bool kSharesA = kSharesAValue;
  static constexpr int32_t kBoxRowsA = kSharesA ? kRows / 2 / kClusterCtas : kRows;
  static constexpr bool kStreamsB = false;  // tiles of several rows of tiles share it
  static_assert(kStages >= 2, "a stage is filled while another is used");
  static_assert(!kSharesA || kColumnTiles % kClusterCtas == 0, "all CTAs have columns");

  MOEJIT_DEVICE static int32_t column(int32_t tile) { return tile * kSectionColumns; }

  // Returns how many rows of A are multiplied.
  MOEJIT_DEVICE static int32_t rows_a(const GemmTile& tile) {
    return tile.rows <= kRows / 2 ? kRows / 2 : kRows;
  }

  MOEJIT_DEVICE static WarpgroupPart part(const GemmTile&, int32_t warpgroup) {
    return {.row = warpgroup * 64, .column = 0};
  }

  template <typename Kernel, typename... Arguments>
  MOEJIT_DEVICE static void dispatch(const GemmTile&, Arguments&... arguments) {
    Kernel::template compute<kTileColumns>(arguments...);
  }
};

}  // namespace moejit::device
