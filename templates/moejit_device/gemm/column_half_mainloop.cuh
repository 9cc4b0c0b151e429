// SPDX-License-Identifier: Apache-2.0
#pragma once

// The main loop of accumulating_mainloop.cuh for parts of 128 rows and half of the tile's columns
// (ColumnHalf). A step is two products of 64 rows with the same columns of B. It is for targets
// without WGMMA, where warps read operands themselves: products are complete when a step ends, and
// the stage is given back at once.

#include "moejit_device/gemm/accumulating_mainloop.cuh"
#include "moejit_device/gemm/multiply_pair.cuh"

namespace moejit::device {

template <typename Multiply>
class ColumnHalfMainloop {
 public:
  using Multiplier = Multiply;

  // Adds the products of k_steps steps, 1 or more, to sums that are 0. All threads of a math
  // warpgroup; sums [kW / 2] of the upper 64 rows, then of the lower ones, each in the order of
  // ptx::WgmmaSum. Tails have the upper rows alone. `scales` is NoScales or GroupTail.
  template <int32_t kW, int32_t kSteps, typename Stages, typename Scales>
  MOEJIT_DEVICE static void run(int32_t k_steps, const WarpgroupPart& part, const Scales& scales,
                                StageReader<Stages>& reader, float (&sums)[kW / 2]) {
    static_assert(Stages::TileShape::Part::kRows == 128, "two products of 64 rows");
    if constexpr (kW < Stages::TileShape::kTileColumns) {
      AccumulatingMainloop<Multiply>::template run<kW, kSteps>(k_steps, part, scales, reader, sums);
    } else {
      const PartOperands operands = part_operands<Multiply, Stages>(part);
      ptx::WgmmaSum<kW / 2> upper, lower;
      chain(k_steps, operands, scales, reader, upper, lower);
#pragma unroll
      for (int32_t i = 0; i < kW / 4; ++i) {
        sums[i] = upper(i);
        sums[kW / 4 + i] = lower(i);
      }
    }
  }

 private:
  // upper, lower = the products of `steps` steps, 1 or more, complete and readable.
  template <typename Stages, typename Scales, int32_t kColumns>
  MOEJIT_DEVICE static void chain(int32_t steps, const PartOperands& operands, const Scales& scales,
                                  StageReader<Stages>& reader, ptx::WgmmaSum<kColumns>& upper,
                                  ptx::WgmmaSum<kColumns>& lower) {
#pragma unroll 1
    for (int32_t step = 0; step < steps; ++step) {
      const int32_t stage = reader.position.stage, offset = stage * Stages::kStageBytes;
      reader.wait();
      if constexpr (Scales::kEndsGroups) {
        if (step + 1 == steps) scales.template end_group<Multiply, Stages>(stage);
      }
      ptx::wgmma_fence(upper, lower);
      multiply_pair(Multiply(), upper, lower, operands.m + offset, operands.n + offset, step > 0);
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>(upper, lower);
      reader.release(stage);
      reader.position.advance();
    }
  }
};

}  // namespace moejit::device
