// SPDX-License-Identifier: Apache-2.0
#pragma once

// The shape of tiles for groups of few rows, as in decoding, where reading B is what takes the
// time. WGMMA has 64 rows on its m side whether they are used or not, but any multiple of 8 on its
// n side. So the operands are swapped: 64 rows of B for each warpgroup on the m side, the rows of a
// group on the n side, and D comes out transposed. A group of 20 rows costs n = 32, and most of
// shared memory holds B that is on its way.

#include "moejit_device/gemm/tile.cuh"

namespace moejit::device {

// Tiles of kRows rows, one of the widths of next_width(), and 128 columns, kColumnTiles of which
// cover a section: a tile lies in one scale block of B, since both start with the section.
//
// The kClusterCtas CTAs of a cluster take tiles beside each other, which share A: each CTA copies a
// part of A's boxes into the shared memory of all, so that L2 is read once for all.
//
// Gated tiles, kTileSectionsValue 2, have the same columns of gate and of up, 64 of each, or 128,
// the columns of a scale of their activation. In shared memory 8 rows of gate and 8 of up follow
// each other, so rows r and r + 8 of a WGMMA fragment, which are one thread's, are gate and up of
// one column. B's rows lie section after section, or gate and up alternate in it
// (kAlternatesValue).
//
// B may be packed: kTileBytesB bytes of a step that lie in one piece in memory.
//
// Two CTAs an SM (kCtasPerSmValue) have one math warpgroup and 64 rows of B each: one loads while
// the other ends a tile, and where tiles are few, more SMs have one.
template <int32_t kRowsValue, int32_t kColumnTilesValue, int32_t kStagesValue,
          int32_t kClusterCtasValue = 1, int32_t kTileSectionsValue = 1,
          bool kAlternatesValue = false, int32_t kTileColumnsValue = 128,
          int32_t kTileBytesBValue = kTileColumnsValue * 128, int32_t kCtasPerSmValue = 1>
struct SwappedTileShape {
  static constexpr int32_t kRows = kRowsValue;
  static constexpr int32_t kTileColumns = kTileColumnsValue;
  static constexpr int32_t kColumnTiles = kColumnTilesValue;
  static constexpr int32_t kTileSections = kTileSectionsValue;
  static constexpr bool kAlternates = kAlternatesValue;
  static constexpr int32_t kStages = kStagesValue;
  static constexpr int32_t kStepBytes = 128;
  static constexpr int32_t kTileBytesB = kTileBytesBValue;
  static constexpr int32_t kCtasPerSm = kCtasPerSmValue;
  static constexpr int32_t kMathWarpgroups = 2 / kCtasPerSm;
  static constexpr int32_t kProducts =  // of 64 rows of B, in a part
      kTileColumns / kMathWarpgroups / 64;
  static constexpr int32_t kThreads = (kMathWarpgroups + 1) * ptx::kWarpgroupThreads;
  static constexpr bool kIsSwapped = true;
  // Tiles without real rows would be done at once; where they alternate with others, half of the
  // CTAs would get all of the work.
  static constexpr bool kHasPadTiles = false;
  static constexpr bool kHasEmptyParts = false;
  static constexpr int32_t kClusterCtas = kClusterCtasValue;
  static constexpr bool kSharesA = true;    // in a cluster
  static constexpr int32_t kBoxRowsA = 16;  // those that a tile has no rows for are not copied
  static constexpr bool kStreamsB = true;   // most groups have one tile, which reads it once
  template <int32_t kW>
  static constexpr bool kUnrolls = true;
  // Returns the width after one of 16, 32, 64, 96 and 128.
  MOEJIT_DEVICE static constexpr int32_t next_width(int32_t width) {
    return width < 64 ? 2 * width : width + 32;
  }
  static_assert(kRows == 16 || kRows == 32 || kRows == 64 || kRows == 96 || kRows == 128,
                "one of these widths");
  static_assert(kColumnTiles % kClusterCtas == 0, "all CTAs of a cluster have columns");
  static_assert(kCtasPerSm == 1 || (kTileColumns == 64 && kClusterCtas == 1),
                "CTAs that share an SM have 64 rows of B");
  static_assert(kStages >= 2, "a stage is filled while another is used");

  MOEJIT_DEVICE static int32_t column(int32_t tile) {
    return tile * (kTileColumns / kTileSections);
  }

  // Returns how many rows of A are multiplied; others of their boxes are copied too.
  MOEJIT_DEVICE static int32_t rows_a(const GemmTile& tile) { return tile.rows; }

  // All rows and half of the columns, as rows of B lie in shared memory.
  MOEJIT_DEVICE static WarpgroupPart part(const GemmTile&, int32_t warpgroup) {
    return {.row = 0, .column = warpgroup * (kTileColumns / kMathWarpgroups)};
  }

  // Computes a tile in the least width that holds its rows. A row's result does not depend on which
  // one it is: columns of WGMMA are independent of each other.
  template <typename Kernel, int32_t kWidth = 16, typename... Arguments>
  MOEJIT_DEVICE static void dispatch(const GemmTile& tile, Arguments&... arguments) {
    if constexpr (kWidth < kRows) {
      if (tile.rows > kWidth) {
        dispatch<Kernel, next_width(kWidth)>(tile, arguments...);
        return;
      }
    }
    Kernel::template compute<kWidth * kProducts>(arguments...);
  }
};

}  // namespace moejit::device
