// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the parts of a grouped GEMM tell each other: the shape of a CTA's tile and where one lies.

#include "moejit_device/core/integer.cuh"
#include "moejit_device/ptx/tensor_copy.cuh"
#include "moejit_device/ptx/warpgroup.cuh"

namespace moejit::device {

// One tile. Coordinates count elements of the tensor maps: rows of A and B, and the contraction.
// 48 bytes that the producer hands to the math warps through shared memory.
struct GemmTile {
  int32_t group;        // -1: there are no more tiles
  int32_t a_row;        // first row of A
  int32_t b_row;        // first row of B
  int32_t k_begin;      // first element of the contraction
  int32_t k_steps;      // may be 0: nothing is copied or multiplied, the epilogue has zeros
  int32_t d_row;        // first row of D
  int32_t rows;         // real rows, 0 to the shape's kRows; 0 has k_steps 0, clusters aside
  int32_t padded_rows;  // real and pad rows: the others belong to somebody else; 0: none to store
  int32_t section;      // of D's columns, the first of a tile's; where groups divide the
                        // contraction, the elements of the last step that are of the group
  int32_t column;       // first one within the section
  int32_t b_matrix;     // of an MN-major B
  int32_t d_matrix;     // where groups divide the contraction
};
static_assert(sizeof(GemmTile) == 48, "three accesses of 16 bytes");

// Where the part of a tile starts that a math warpgroup computes.
struct WarpgroupPart {
  int32_t row;           // in the tile
  int32_t column;        // in the tile
  bool is_tail = false;  // all rows of the tile, and half of its columns
};

// Which half of a tile of 128 rows each of two math warpgroups computes. A part has kRows rows, of
// which a product of WGMMA takes 64, and columns(of the tile) columns, and starts at row() and
// column(). It has the sums of the first 64 rows, then of the others. panel() is where panel i
// starts, in the order of the sums: 64 rows and `width` columns of the part, a divisor of its
// columns.
struct RowHalf {
  static constexpr int32_t kRows = 64;
  MOEJIT_DEVICE static constexpr int32_t columns(int32_t tile_columns) { return tile_columns; }
  MOEJIT_DEVICE static int32_t row(int32_t warpgroup) { return warpgroup * kRows; }
  MOEJIT_DEVICE static int32_t column(int32_t, int32_t) { return 0; }
  MOEJIT_DEVICE static WarpgroupPart panel(int32_t warpgroup, int32_t, int32_t width, int32_t i) {
    return {.row = row(warpgroup), .column = i * width};
  }
};
struct ColumnHalf {
  static constexpr int32_t kRows = 128;
  MOEJIT_DEVICE static constexpr int32_t columns(int32_t tile_columns) { return tile_columns / 2; }
  MOEJIT_DEVICE static int32_t row(int32_t) { return 0; }
  MOEJIT_DEVICE static int32_t column(int32_t warpgroup, int32_t tile_columns) {
    return warpgroup * columns(tile_columns);
  }
  MOEJIT_DEVICE static WarpgroupPart panel(int32_t warpgroup, int32_t tile_columns, int32_t width,
                                           int32_t i) {
    const int32_t first = column(warpgroup, tile_columns);
    const int32_t upper = columns(tile_columns) - i * width;  // columns left in the first 64 rows
    if (upper > 0) return {.row = 0, .column = first + i * width};
    return {.row = 64, .column = first - upper};
  }
};

// Where tiles have more columns, results are staged half after half, before the ring of stages.
inline constexpr int32_t kMostStagedColumns = 192;

// Tiles of 128 rows and, per section of D's columns, kWideTiles of kWideColumns, then kNarrowTiles
// of kNarrowColumns: two widths, because the last wide tile would mostly be empty. A tile with no
// more than kTailRows rows, 64 or none, is a tail, unless it is narrow beside wide ones: few tiles
// are both, and a body for them has to be compiled. A step of the contraction takes 128 bytes of
// each row of A and B.
//
// The kClusterCtas CTAs of a cluster take tiles below each other, which share B: each CTA copies a
// part of B's tile into the shared memory of all, so that L2 is read once for all. They go through
// the same steps together, also where a group has no rows left for some of them. With kSharesA they
// take tiles beside each other, and copy A in this way.
template <int32_t kWideColumnsValue, int32_t kWideTilesValue, int32_t kNarrowColumnsValue,
          int32_t kNarrowTilesValue, int32_t kStagesValue, int32_t kTailRowsValue = 64,
          int32_t kClusterCtasValue = 1, typename PartValue = RowHalf, bool kSharesAValue = false>
struct GemmTileShape {
  using Part = PartValue;  // RowHalf or ColumnHalf, of tiles that are no tails
  static constexpr int32_t kWideColumns = kWideColumnsValue;
  static constexpr int32_t kWideTiles = kWideTilesValue;
  static constexpr int32_t kNarrowColumns = kNarrowColumnsValue;
  static constexpr int32_t kNarrowTiles = kNarrowTilesValue;
  static constexpr int32_t kStages = kStagesValue;
  static constexpr int32_t kTileColumns = kWideTiles > 0 ? kWideColumns : kNarrowColumns;
  static constexpr int32_t kColumnTiles = kWideTiles + kNarrowTiles;  // of a section
  static constexpr int32_t kTileSections = 1;
  static constexpr int32_t kRows = 128;
  static constexpr int32_t kTailRows = kTailRowsValue;
  static constexpr int32_t kClusterCtas = kClusterCtasValue;
  static constexpr bool kSharesA = kSharesAValue;
  static constexpr int32_t kStepBytes = 128;
  static constexpr int32_t kTileBytesB = kTileColumns * kStepBytes;  // of a step
  static constexpr int32_t kCtasPerSm = 1;
  static constexpr int32_t kMathWarpgroups = 2;
  static constexpr int32_t kThreads = (kMathWarpgroups + 1) * ptx::kWarpgroupThreads;
  static constexpr bool kIsSwapped = false;      // A is the m side of WGMMA
  static constexpr bool kHasPadTiles = true;     // pad rows that fill tiles have tiles of their own
  static constexpr bool kHasEmptyParts = false;  // parts without real rows, of tiles with some
  // Copied at once. Rows beyond a tile are copied too, which costs less than more copies. CTAs that
  // share A copy parts of tails and of other tiles.
  static constexpr int32_t kBoxRowsA = kSharesA ? kRows / 2 / kClusterCtas : kRows;
  static constexpr bool kStreamsB = false;  // tiles of several rows of tiles share it
  template <int32_t kW>
  static constexpr bool kUnrolls = kW == kTileColumns;  // the other widths are rare
  template <int32_t kColumns>
  static constexpr bool kHasTails = kTailRows > 0 && kColumns == kTileColumns;
  static_assert(kWideColumns % 64 == 0 && kNarrowColumns % 64 == 0,
                "B is copied 64 rows at a time");
  static_assert(kNarrowColumns < kWideColumns, "the wide tiles are the wide ones");
  static_assert(kTileColumns % (8 * kClusterCtas) == 0, "parts of B are whole swizzled rows");
  static_assert(kStages >= 2, "a stage is filled while another is used");
  static_assert(kColumnTiles > 0, "D has columns");
  static_assert(!kSharesA || kColumnTiles % kClusterCtas == 0, "all CTAs have columns");
  static_assert(kTailRows == 0 || Part::kRows == kTailRows, "a tail has the rows of one part");

  MOEJIT_DEVICE static int32_t column(int32_t tile) {
    return tile < kWideTiles ? tile * kWideColumns
                             : kWideTiles * kWideColumns + (tile - kWideTiles) * kNarrowColumns;
  }
  MOEJIT_DEVICE static bool is_narrow(int32_t column) {
    if constexpr (kNarrowTiles == 0) return false;
    if constexpr (kWideTiles == 0) return true;
    return column >= kWideTiles * kWideColumns;
  }

  // Returns how many columns a tile has.
  MOEJIT_DEVICE static int32_t columns(const GemmTile& tile) {
    return is_narrow(tile.column) ? kNarrowColumns : kWideColumns;
  }

  MOEJIT_DEVICE static bool is_tail(const GemmTile& tile) {
    if constexpr (kTailRows == 0) return false;
    if constexpr (!kHasTails<kNarrowColumns>) {
      if (is_narrow(tile.column)) return false;
    }
    return tile.rows <= kTailRows;
  }

  // Returns how many rows of A are multiplied.
  MOEJIT_DEVICE static int32_t rows_a(const GemmTile& tile) {
    return is_tail(tile) ? kTailRows : kRows;
  }

  // A part, or, of a tail, all rows and half of the columns.
  MOEJIT_DEVICE static WarpgroupPart part(const GemmTile& tile, int32_t warpgroup) {
    if (!is_tail(tile))
      return {.row = Part::row(warpgroup), .column = Part::column(warpgroup, columns(tile))};
    return {.row = 0, .column = warpgroup * (columns(tile) / 2), .is_tail = true};
  }

  // Calls Kernel::compute<kW>(), where a part has kW / 2 sums a thread: kW is the n of WGMMA, or
  // twice that where a part has two products of 64 rows.
  template <typename Kernel, typename... Arguments>
  MOEJIT_DEVICE static void dispatch(const GemmTile& tile, Arguments&... arguments) {
    const bool narrow = is_narrow(tile.column);
    const bool tail = is_tail(tile);
    if constexpr (kWideTiles > 0) {
      if (!narrow && !tail) Kernel::template compute<kWideColumns>(arguments...);
    }
    if constexpr (kWideTiles > 0 && kHasTails<kWideColumns>) {
      if (!narrow && tail) Kernel::template compute<kWideColumns / 2>(arguments...);
    }
    if constexpr (kNarrowTiles > 0) {
      if (narrow && !tail) Kernel::template compute<kNarrowColumns>(arguments...);
    }
    if constexpr (kNarrowTiles > 0 && kHasTails<kNarrowColumns>) {
      if (narrow && tail) Kernel::template compute<kNarrowColumns / 2>(arguments...);
    }
  }
};

}  // namespace moejit::device
