// SPDX-License-Identifier: Apache-2.0
#pragma once

// The main loop of tiles with two sections, gate and up. A math warpgroup has 64 rows and 128
// columns of each, so that gate and up of an element are in the same thread, and sums for both take
// 128 registers. There is room for one partial sum of 64 more: each step multiplies with the
// columns of gate, promotes, multiplies with those of up, promotes.

#include "moejit_device/gemm/mainloop.cuh"

namespace moejit::device {

template <typename Multiply>
class GatedMainloop {
 public:
  using Multiplier = Multiply;

  // Adds the products of k_steps steps, 1 or more; kSteps as in PromotingMainloop. All threads of a
  // math warpgroup; sums [kW / 2] are those of gate, then of up, each in the order of
  // ptx::WgmmaSum.
  template <int32_t kW, int32_t kSteps, typename Stages, typename Scales>
  MOEJIT_DEVICE static void run(int32_t k_steps, const WarpgroupPart& part, const Scales& scales,
                                StageReader<Stages>& reader, float (&sums)[kW / 2]) {
    static_assert(kW == Stages::TileShape::kTileColumns, "whole rows of the tile");
    constexpr int32_t kRowBytes = 128;
    const auto a = ptx::matrix_descriptor(Stages::a(0)) + part.row * kRowBytes;
    const auto b = ptx::matrix_descriptor(Stages::b(0));
    // Where the compiler knows that rounds are whole, it has no rest to keep registers for. One
    // round of four would be no loop any more: ptxas begins the epilogue among its steps then, and
    // has no registers for that.
    const int32_t steps = kSteps % 4 == 0 && kSteps > 0 ? kSteps : k_steps;
    constexpr int32_t kUnroll = kSteps == 4 ? 2 : kSteps % 4 == 0 ? 4 : 1;
#pragma unroll kUnroll
    for (int32_t step = 0; step < steps; ++step) {
      const int32_t stage = reader.position.stage;
      const auto step_a = a + stage * Stages::kStageBytes;
      const auto step_b = b + stage * Stages::kStageBytes;
      ptx::WgmmaSum<kW / 2> partial;  // of both in turn: there are no registers for two
      reader.wait();
      multiply<0, Stages>(step_a, step_b, stage, scales, partial, sums);
      multiply<1, Stages>(step_a, step_b + Stages::kSectionBytesB, stage, scales, partial,
                          sums + kW / 4);
      reader.release(stage);
      reader.position.advance();
    }
  }

 private:
  template <int32_t kSection, typename Stages, typename Scales, int32_t kW>
  MOEJIT_DEVICE static void multiply(ptx::MatrixDescriptor a, ptx::MatrixDescriptor b,
                                     int32_t stage, const Scales& scales,
                                     ptx::WgmmaSum<kW>& partial, float* sums) {
    const auto factors = scales.template section_factors<kW, kSection, Stages>(stage);
    ptx::wgmma_fence(partial);
    Multiply::run(partial, a, b, false);
    ptx::wgmma_commit();
    ptx::sync_warp();  // all lanes have read the factors
    ptx::wgmma_wait<0>(partial);
    Scales::template promote<kW>(partial, factors, sums);
  }
};

}  // namespace moejit::device
