// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tiles whose columns the math warpgroups halve (ColumnHalf), and the way of their sums to an
// epilogue that stores 64 rows at a time.

#include "moejit_device/gemm/tile.cuh"

namespace moejit::device {

// kTiles tiles of 128 rows and kColumns columns, per section of D's columns. Parts of a tile and of
// a tail have the same columns, and a tail leaves the lower 64 rows out. So tails need no boxes of
// their own, whatever major B has.
template <int32_t kColumns, int32_t kTiles, int32_t kStagesValue>
struct ColumnHalfTileShape
    : GemmTileShape<2 * kColumns, 0, kColumns, kTiles, kStagesValue, 0, 1, ColumnHalf> {
  using Tiles = GemmTileShape<2 * kColumns, 0, kColumns, kTiles, kStagesValue, 0, 1, ColumnHalf>;
  static constexpr int32_t kTailRows = 64;
  static_assert(kColumns % 128 == 0, "half of the columns are whole boxes");

  MOEJIT_DEVICE static bool is_tail(const GemmTile& tile) { return tile.rows <= kTailRows; }

  MOEJIT_DEVICE static int32_t rows_a(const GemmTile& tile) {
    return is_tail(tile) ? kTailRows : Tiles::kRows;
  }

  MOEJIT_DEVICE static WarpgroupPart part(const GemmTile& tile, int32_t warpgroup) {
    WarpgroupPart part = Tiles::part(tile, warpgroup);
    part.is_tail = is_tail(tile);
    return part;
  }

  // Calls Kernel::compute<kW>(), where a thread has kW / 2 sums of a part.
  template <typename Kernel, typename... Arguments>
  MOEJIT_DEVICE static void dispatch(const GemmTile& tile, Arguments&... arguments) {
    if (is_tail(tile)) {
      Kernel::template compute<kColumns / 2>(arguments...);
    } else {
      Kernel::template compute<kColumns>(arguments...);
    }
  }
};

// Hands a part to an epilogue for parts of 64 rows: the upper rows, then the lower ones, each as if
// the tile began at the part's columns.
template <typename Shape, typename Epilogue>
class ColumnHalfEpilogue {
 public:
  template <typename TileShape>
  static constexpr int32_t kStagingBytes = Epilogue::template kStagingBytes<TileShape>;

  static constexpr bool kHasStorers = false;
  static_assert(!Epilogue::kHasStorers, "nothing here for storers");

  // `staging` is the warpgroup's own.
  MOEJIT_DEVICE explicit ColumnHalfEpilogue(ptx::SharedPtr<Bytes16> staging) : epilogue_(staging) {}

  // All threads of a math warpgroup.
  template <int32_t kW, typename Params>
  MOEJIT_DEVICE void run(const Params& params, const GemmTile& tile, const WarpgroupPart& part,
                         float (&sums)[kW / 2]) {
    if constexpr (kW < Shape::kTileColumns) {
      epilogue_.template run<kW>(params, tile, part, sums);
    } else {
      GemmTile half = tile;
      half.column += part.column;
      run_block<kW / 2>(params, half, 0, sums);
      run_block<kW / 2>(params, half, 64, sums + kW / 4);
    }
  }

  // Finishes the stores. Called before the CTA ends.
  MOEJIT_DEVICE void finish() const { epilogue_.finish(); }

 private:
  // 64 rows from `row` on; of_block [kW / 2].
  template <int32_t kW, typename Params>
  MOEJIT_DEVICE void run_block(const Params& params, const GemmTile& half, int32_t row,
                               const float* of_block) {
    float sums[kW / 2];
#pragma unroll
    for (int32_t i = 0; i < kW / 2; ++i) sums[i] = of_block[i];
    epilogue_.template run<kW>(params, half, WarpgroupPart{.row = row, .column = 0}, sums);
  }

  Epilogue epilogue_;
};

}  // namespace moejit::device
