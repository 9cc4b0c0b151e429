// SPDX-License-Identifier: Apache-2.0
#pragma once

// The main loop of gated swapped tiles with 256 rows of B: a math warpgroup has two products of 64
// rows, which share A and its scales. One is promoted after the other, so that registers hold the
// sums of both and one partial sum. Tiles are so few rows of A that reading B takes longer.

#include "moejit_device/gemm/mainloop.cuh"

namespace moejit::device {

template <typename Multiply>
class GatedSwappedMainloop {
 public:
  using Multiplier = Multiply;

  // Adds the products of k_steps steps, 1 or more. All threads of a math warpgroup; sums [kW / 2]
  // of the upper 64 rows, then of the lower ones, each in the order of ptx::WgmmaSum.
  template <int32_t kW, int32_t, typename Stages, typename Scales>
  MOEJIT_DEVICE static void run(int32_t k_steps, const WarpgroupPart& part, const Scales& scales,
                                StageReader<Stages>& reader, float (&sums)[kW / 2]) {
    static_assert(Stages::TileShape::kProducts == 2, "two products of 64 rows");
    constexpr int32_t kColumns = kW / 2;
    constexpr int32_t kLowerRows = 64 * 128;  // bytes of B before them
    const auto [m, n] = part_operands<Multiply, Stages>(part);
    ptx::WgmmaSum<kColumns> partial;
#pragma unroll 1
    for (int32_t step = 0; step < k_steps; ++step) {
      const int32_t stage = reader.position.stage;
      reader.wait();
      const auto factors = scales.template factors<kColumns, Stages>(stage);
      multiply<Stages>(m, n, stage, partial);
      Scales::template promote<kColumns>(partial, factors, sums);
      ptx::sync_warp();  // all lanes have read the factors
      multiply<Stages>(m + kLowerRows, n, stage, partial);
      reader.release(stage);
      reader.position.advance();
      Scales::template promote<kColumns>(partial, factors, sums + kColumns / 2);
    }
  }

 private:
  template <typename Stages, int32_t kColumns>
  MOEJIT_DEVICE static void multiply(ptx::MatrixDescriptor m, ptx::MatrixDescriptor n,
                                     int32_t stage, ptx::WgmmaSum<kColumns>& partial) {
    ptx::wgmma_fence(partial);
    Multiply::run(partial, m + stage * Stages::kStageBytes, n + stage * Stages::kStageBytes, false);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(partial);
  }
};

}  // namespace moejit::device
