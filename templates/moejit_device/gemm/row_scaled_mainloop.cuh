// SPDX-License-Identifier: Apache-2.0
#pragma once

// The main loop where every element of the sums has a factor of its own in each step. Promotion
// takes two instructions an element, twice as many as in mainloop.cuh. All of it comes after the
// wait for the tensor cores, so the other warpgroup's products have to hide it. Wide tiles hide it
// better.
//
// Registers decide how many factors of columns a thread can hold: sums and partial sums take kW of
// them. The held ones are loaded before the products are issued: behind them they wait for the
// products' own reads of shared memory, which leave loads little (on an H100 24 of 8 bytes a thread
// take a warpgroup 175 cycles alone, 614 beside a stream of products). The other warpgroup's
// products still slow them, but no longer this one's: 1330 cycles a step instead of 1393, 898
// TFLOP/s instead of 866. The other factors are fetched between the promotions, so that the stage
// is given back behind these.

#include "moejit_device/gemm/mainloop.cuh"
#include "moejit_device/gemm/row_scales.cuh"

namespace moejit::device {

template <typename Multiply>
class RowScaledMainloop {
  static constexpr int32_t kRegisters = 232;      // of a thread
  static constexpr int32_t kOtherRegisters = 20;  // neither sums nor factors of columns

 public:
  using Multiplier = Multiply;

  // Adds the products of k_steps steps, 1 or more. All threads of a math warpgroup; sums [kW / 2]
  // in the order of ptx::WgmmaSum.
  template <int32_t kW, int32_t, typename Stages, typename Scales>
  MOEJIT_DEVICE static void run(int32_t k_steps, const WarpgroupPart& part, const Scales& scales,
                                StageReader<Stages>& reader, float (&sums)[kW / 2]) {
    constexpr int32_t kHeld = smaller((kRegisters - kW - kOtherRegisters) / 2, kW / 8);
    const auto [m, n] = part_operands<Multiply, Stages>(part);
    ptx::WgmmaSum<kW> partial;
    // Unrolled, the assembler moves promotions below the next products, and has no registers left.
#pragma unroll 1
    for (int32_t step = 0; step < k_steps; ++step) {
      const int32_t stage = reader.position.stage;
      reader.wait();
      FactorPair held[kHeld];
      const RowFactors rows = scales.template rows<Stages>(stage, 0);
#pragma unroll
      for (int32_t j = 0; j < kHeld; ++j) held[j] = scales.template columns<Stages>(stage, j);
      ptx::wgmma_fence(partial);
      Multiply::run(partial, m + stage * Stages::kStageBytes, n + stage * Stages::kStageBytes,
                    false);
      ptx::wgmma_commit();
      ptx::sync_warp();  // else the assembler puts what follows between the products
      ptx::wgmma_wait<0>(partial);
#pragma unroll
      for (int32_t j = 0; j < kW / 8; ++j) {
        const FactorPair columns = j < kHeld ? held[j] : scales.template columns<Stages>(stage, j);
        Scales::promote(partial, rows, columns, j, sums + 4 * j);
      }
      ptx::sync_warp();  // all lanes have read the factors
      reader.release(stage);
      reader.position.advance();
    }
  }
};

}  // namespace moejit::device
