// SPDX-License-Identifier: Apache-2.0
#pragma once

// One scale for each 128x128 tile of both operands, as a scaling-aware transpose leaves them: the
// partial sums of a step have one factor, or two where the columns reach into B's next tile.

#include "moejit_device/gemm/scale_factors.cuh"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

template <typename Problem, typename Shape>
class TileScales {
  static constexpr int32_t kBlocksB = ceil_div(Problem::kN, 128);

 public:
  static constexpr int32_t kSuppliers = 0;  // the warp that walks over the tiles supplies
  static constexpr bool kIsCopied = false;
  static constexpr int32_t kFactorBytes = 16;

  // Sets the place of the part's columns. Called by all threads of a math warpgroup before a tile.
  MOEJIT_DEVICE void start(const GemmTile& tile, const WarpgroupPart& part) {
    split_ = 128 - tile.column % 128 - part.column;
  }

  // Returns the factors of a full stage.
  template <int32_t kW, typename Stages>
  MOEJIT_DEVICE ScaleFactors<kW> factors(int32_t stage) const {
    const FactorPair pair = ptx::load(Stages::template factors<FactorPair>(stage));
    return choose_by_column<kW>(pair, pair, split_);
  }

  template <int32_t kW>
  MOEJIT_DEVICE static void promote(const ptx::WgmmaSum<kW>& partial,
                                    const ScaleFactors<kW>& factors, float (&sums)[kW / 2]) {
    promote_scaled<kW>(partial, factors, sums);
  }

  // Writes the factors of a tile's steps: each lane has one step of 32. All lanes of a warp.
  template <typename Stages, typename Params>
  MOEJIT_DEVICE static void supply(const Params& params, int32_t, const GemmTile& tile,
                                   typename Stages::Position& position) {
    const int32_t pitch = static_cast<int32_t>(params.columns / 128);  // scales of a row of tiles
    const int32_t block = tile.column / 128;
    const int32_t next_b = block + 1 < kBlocksB ? pitch : 0;
    const auto a =
        ptx::global(params.a_scale_inv) + (tile.a_row / 128 * pitch + tile.k_begin / 128);
    const auto b = ptx::global(params.b_scale_inv) + (block * pitch + tile.k_begin / 128);
    // Where a cluster's other CTAs alone have rows, this one's stages pass without scales.
    const bool has_rows = Shape::kClusterCtas == 1 || tile.rows > 0;
    const auto fetch = [&](int32_t step) -> FactorPair {
      if (!has_rows || step >= tile.k_steps) return {0.0f, 0.0f};
      const float scale = ptx::load(a + step);
      return {ptx::multiply(scale, ptx::load(b + step)),
              ptx::multiply(scale, ptx::load(b + (next_b + step)))};
    };
    const int32_t lane = ptx::lane_index();
    FactorPair next = fetch(lane);
    for (int32_t first = 0; first < tile.k_steps; first += 32) {
      const FactorPair pair = next;
      next = fetch(first + 32 + lane);
      for (int32_t i = 0; i < smaller(tile.k_steps - first, 32); ++i) {
        ptx::wait(Stages::empty(position.stage), position.parity ^ 1);
        // No lane still waits for this round of the ring when the stage becomes full: the math
        // warps could empty it once more, and that lane would wait for the round after.
        ptx::sync_warp();
        if (lane == i) {
          ptx::store(Stages::template factors<FactorPair>(position.stage), pair);
          ptx::arrive(Stages::full(position.stage));
        }
        position.advance();
      }
    }
  }

 private:
  int32_t split_;  // columns of the part from here on are in B's next tile
};

}  // namespace moejit::device
