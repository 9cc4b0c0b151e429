// SPDX-License-Identifier: Apache-2.0
#pragma once

// The main loop where every element of the sums has a factor of its own in each step. To form the
// factors takes as many multiplications as to promote. Behind the wait for the tensor cores these
// would lengthen the serial chain of mainloop.cuh by half; here nearly all are made while the
// tensor cores work, in registers that a tile of 128 columns leaves free: 64 sums, 64 partial sums,
// 64 factors.

#include "moejit_device/gemm/mainloop.cuh"

namespace moejit::device {

template <typename Multiply>
class RowScaledMainloop {
 public:
  using Multiplier = Multiply;

  // Adds the products of k_steps steps, 1 or more. All threads of a math warpgroup; sums [kW / 2]
  // in the order of ptx::WgmmaSum.
  template <int32_t kW, int32_t, typename Stages, typename Scales>
  MOEJIT_DEVICE static void run(int32_t k_steps, const WarpgroupPart& part, const Scales& scales,
                                StageReader<Stages>& reader, float (&sums)[kW / 2]) {
    const auto [m, n] = part_operands<Multiply, Stages>(part);
#pragma unroll 4
    for (int32_t step = 0; step < k_steps; ++step) {
      ptx::WgmmaSum<kW> partial;
      const int32_t stage = reader.position.stage;
      reader.wait();
      ptx::wgmma_fence(partial);
      Multiply::run(partial, m + stage * Stages::kStageBytes, n + stage * Stages::kStageBytes,
                    false);
      ptx::wgmma_commit();
      ptx::sync_warp();  // else the assembler puts what follows between the products
      const auto factors = scales.template factors<kW, Stages>(stage);
      ptx::sync_warp();  // all lanes have read the scales
      ptx::wgmma_wait<0>(partial);
      reader.release(stage);
      reader.position.advance();
      Scales::template promote<kW>(partial, factors, sums);
    }
  }
};

}  // namespace moejit::device
