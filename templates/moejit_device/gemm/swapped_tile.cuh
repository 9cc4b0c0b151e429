// SPDX-License-Identifier: Apache-2.0
#pragma once

// The shape of tiles for groups of few rows, as in decoding, where reading B is what takes the
// time. WGMMA has 64 rows on its m side whether they are used or not, but any multiple of 8 on its
// n side. So the operands are swapped: 64 rows of B for each warpgroup on the m side, the rows of a
// group on the n side, and D comes out transposed. A group of 20 rows costs n = 32, and nearly all
// of shared memory holds B that is on its way.

#include "moejit_device/gemm/tile.cuh"

namespace moejit::device {

// Tiles of kRows rows, 16, 32 or 64, and 128 columns, kColumnTiles of which cover a section: a tile
// lies in one scale block of B, since both start with the section.
template <int32_t kRowsValue, int32_t kColumnTilesValue, int32_t kStagesValue>
struct SwappedTileShape {
  static constexpr int32_t kRows = kRowsValue;
  static constexpr int32_t kTileColumns = 128;
  static constexpr int32_t kColumnTiles = kColumnTilesValue;
  static constexpr int32_t kTileSections = 1;
  static constexpr int32_t kStages = kStagesValue;
  static constexpr int32_t kStepBytes = 128;
  static constexpr int32_t kMathWarpgroups = 2;
  static constexpr int32_t kThreads = (kMathWarpgroups + 1) * ptx::kWarpgroupThreads;
  static constexpr bool kIsSwapped = true;
  // Tiles without real rows would be done at once; where they alternate with others, half of the
  // CTAs would get all of the work.
  static constexpr bool kHasPadTiles = false;
  static constexpr bool kHasEmptyParts = false;
  static constexpr int32_t kClusterCtas = 1;
  static constexpr int32_t kBoxRowsA = 16;  // those that a tile has no rows for are not copied
  static constexpr auto kPolicyB = ptx::CachePolicy::kEvictFirst;  // read once, and A again
  template <int32_t kW>
  static constexpr bool kUnrolls = true;
  static_assert(kRows == 16 || kRows == 32 || kRows == 64, "one of the widths below");
  static_assert(kStages >= 2, "a stage is filled while another is used");

  MOEJIT_DEVICE static int32_t column(int32_t tile) { return tile * kTileColumns; }

  // All rows and half of the columns.
  MOEJIT_DEVICE static WarpgroupPart part(const GemmTile&, int32_t warpgroup) {
    return {.row = 0, .column = warpgroup * 64};
  }

  // A row's result does not depend on which of these it is computed in: columns of WGMMA are
  // independent of each other.
  template <typename Kernel, typename... Arguments>
  MOEJIT_DEVICE static void dispatch(const GemmTile& tile, Arguments&... arguments) {
    if (tile.rows <= 16) {
      Kernel::template compute<16>(arguments...);
      return;
    }
    if constexpr (kRows > 16) {
      if (tile.rows <= 32) Kernel::template compute<32>(arguments...);
    }
    if constexpr (kRows > 32) {
      if (tile.rows > 32) Kernel::template compute<64>(arguments...);
    }
  }
};

}  // namespace moejit::device
