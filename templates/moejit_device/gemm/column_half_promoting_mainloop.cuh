// SPDX-License-Identifier: Apache-2.0
#pragma once

// PromotingMainloop for parts of 128 rows and half of the tile's columns (ColumnHalf): partial sums
// are two products of 64 rows with the same columns of B. Like ColumnHalfMainloop it is for targets
// without WGMMA: products are complete when a step ends, and other warps multiply while one
// promotes.

#include "moejit_device/gemm/multiply_pair.cuh"

namespace moejit::device {

// The scales of both blocks of 64 rows, each as of a part of its own.
template <typename Scales>
class ColumnHalfScales {
 public:
  static constexpr int32_t kSuppliers = Scales::kSuppliers;
  static constexpr bool kIsCopied = Scales::kIsCopied;
  static constexpr int32_t kFactorBytes = Scales::kFactorBytes;
  static_assert(!kIsCopied, "nothing here for scales that copies bring");

  // Sets the place of both blocks' rows. Called by all threads of a math warpgroup before a tile.
  MOEJIT_DEVICE void start(const GemmTile& tile, const WarpgroupPart& part) {
    WarpgroupPart below = part;
    below.row += 64;
    upper_.start(tile, part);
    lower_.start(tile, below);
  }

  template <typename Stages, typename Params>
  MOEJIT_DEVICE static void supply(const Params& params, int32_t supplier, const GemmTile& tile,
                                   typename Stages::Position& position) {
    Scales::template supply<Stages>(params, supplier, tile, position);
  }

  MOEJIT_DEVICE const Scales& upper() const { return upper_; }
  MOEJIT_DEVICE const Scales& lower() const { return lower_; }

  // sums [kColumns], of the upper rows, then of the lower ones.
  template <int32_t kColumns, typename Factors>
  MOEJIT_DEVICE static void promote(const ptx::WgmmaSum<kColumns>& upper,
                                    const ptx::WgmmaSum<kColumns>& lower, const Factors& of_upper,
                                    const Factors& of_lower, float (&sums)[kColumns]) {
    using Block = float[kColumns / 2];
    Scales::template promote<kColumns>(upper, of_upper, reinterpret_cast<Block&>(sums[0]));
    Scales::template promote<kColumns>(lower, of_lower,
                                       reinterpret_cast<Block&>(sums[kColumns / 2]));
  }

 private:
  Scales upper_, lower_;
};

template <typename Multiply, int32_t kBlocksPerPromotion>
class ColumnHalfPromotingMainloop {
  static_assert(kBlocksPerPromotion == 1 || kBlocksPerPromotion == 2, "one step or two");

 public:
  using Multiplier = Multiply;

  // Adds the products of k_steps steps, 1 or more. All threads of a math warpgroup; sums [kW / 2]
  // of the upper 64 rows, then of the lower ones, each in the order of ptx::WgmmaSum. Tails have
  // the upper rows alone. `scales` is a ColumnHalfScales.
  template <int32_t kW, int32_t kSteps, typename Stages, typename Scales>
  MOEJIT_DEVICE static void run(int32_t k_steps, const WarpgroupPart& part, const Scales& scales,
                                StageReader<Stages>& reader, float (&sums)[kW / 2]) {
    static_assert(Stages::TileShape::Part::kRows == 128, "two products of 64 rows");
    if constexpr (kW < Stages::TileShape::kTileColumns) {
      PromotingMainloop<Multiply, kBlocksPerPromotion>::template run<kW, kSteps>(
          k_steps, part, scales.upper(), reader, sums);
    } else {
      const PartOperands operands = part_operands<Multiply, Stages>(part);
#pragma unroll 1
      for (int32_t left = k_steps; left > 0; left -= kBlocksPerPromotion)
        promotion<kW / 2>(smaller(left, kBlocksPerPromotion), operands, scales, reader, sums);
    }
  }

 private:
  // The steps up to the next promotion, and it.
  template <int32_t kColumns, typename Stages, typename Scales>
  MOEJIT_DEVICE static void promotion(int32_t steps, const PartOperands& operands,
                                      const Scales& scales, StageReader<Stages>& reader,
                                      float (&sums)[kColumns]) {
    ptx::WgmmaSum<kColumns> upper, lower;
    const int32_t first = reader.position.stage;
    reader.wait();
    const auto of_upper = scales.upper().template factors<kColumns, Stages>(first);
    const auto of_lower = scales.lower().template factors<kColumns, Stages>(first);
    step(operands, false, reader, upper, lower);
    if constexpr (kBlocksPerPromotion == 2) {
      if (steps == 2) {
        reader.wait();
        step(operands, true, reader, upper, lower);
      }
    }
    Scales::template promote<kColumns>(upper, lower, of_upper, of_lower, sums);
  }

  // Adds the products of a full stage, and gives it back.
  template <typename Stages, int32_t kColumns>
  MOEJIT_DEVICE static void step(const PartOperands& operands, bool accumulate,
                                 StageReader<Stages>& reader, ptx::WgmmaSum<kColumns>& upper,
                                 ptx::WgmmaSum<kColumns>& lower) {
    const int32_t stage = reader.position.stage, offset = stage * Stages::kStageBytes;
    ptx::wgmma_fence(upper, lower);
    multiply_pair(Multiply(), upper, lower, operands.m + offset, operands.n + offset, accumulate);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(upper, lower);
    ptx::sync_warp();  // all lanes have read the factors
    reader.release(stage);
    reader.position.advance();
  }
};

}  // namespace moejit::device
