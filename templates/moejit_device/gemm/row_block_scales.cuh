// SPDX-License-Identifier: Apache-2.0
#pragma once

// Scales of 1x128 blocks of A's rows and of 128x128 blocks of B, which is constant for all rows of
// a tile and changes at most once in its columns: within a section, or from one to the next.

#include "moejit_device/gemm/row_block_scale_reader.cuh"

namespace moejit::device {

template <typename Problem, typename Shape>
class RowBlockScales {
 public:
  static constexpr int32_t kSuppliers = Shape::kRows / 64;  // warps, of 64 rows each
  static constexpr bool kIsCopied = false;
  static constexpr int32_t kFactorBytes = Shape::kRows * static_cast<int32_t>(sizeof(FactorPair));

  // Sets the place of the part's rows and columns. Called by all threads of a math warpgroup before
  // a tile.
  MOEJIT_DEVICE void start(const GemmTile& tile, const WarpgroupPart& part) {
    row_ = part.row + ptx::warp_index() % 4 * 16 + ptx::lane_index() / 4;
    split_ = 128 - tile.column % 128 - part.column;
  }

  // Returns the factors of a full stage.
  template <int32_t kW, typename Stages>
  MOEJIT_DEVICE ScaleFactors<kW> factors(int32_t stage) const {
    const auto row = Stages::template factors<FactorPair>(stage) + row_;
    return choose_by_column<kW>(ptx::load(row), ptx::load(row + 8), split_);
  }

  template <int32_t kW>
  MOEJIT_DEVICE static void promote(const ptx::WgmmaSum<kW>& partial,
                                    const ScaleFactors<kW>& factors, float* sums) {
    promote_scaled<kW>(partial, factors, sums);
  }

  // Writes the factors of a tile's steps. All lanes of a supplier, 0 to kSuppliers - 1.
  template <typename Stages, typename Params>
  MOEJIT_DEVICE static void supply(const Params& params, int32_t supplier, const GemmTile& tile,
                                   typename Stages::Position& position) {
    const int32_t row = 64 * supplier;
    RowBlockScaleReader<Problem, Shape::kTileSections> reader(params, tile, row);
    reader.each_step(tile.k_steps, [&](const RowFactors& factors) {
      supply_stage<Stages>(position, [&](int32_t stage) {
        const auto to = Stages::template factors<FactorPair>(stage) + row + ptx::lane_index();
        ptx::store(to, factors.row);
        ptx::store(to + 32, factors.row_32);
      });
    });
  }

 private:
  int32_t row_;    // of the tile, this thread's first
  int32_t split_;  // columns of the part from here on are in B's second block
};

}  // namespace moejit::device
