// SPDX-License-Identifier: Apache-2.0
#pragma once

// The main loop of tiles of 256 columns, or of 128 of gate and the same of up. A math warpgroup has
// 64 rows and all columns, whose sums take 128 registers. There is room for one partial sum of 64
// more: each step multiplies with the first half of the columns, promotes, multiplies with the
// second, promotes.
//
// Two warpgroups keep the tensor cores busy if one's way from the end of its products to the start
// of its next ones takes no longer than the other's products, 256 cycles. So nothing but promotion
// stands there: a step's factors are loaded, and its stage is awaited, below the products before.

#include "moejit_device/gemm/mainloop.cuh"

namespace moejit::device {

template <typename Multiply>
class HalvedMainloop {
 public:
  using Multiplier = Multiply;

  // Adds the products of k_steps steps, 1 or more; kSteps as in PromotingMainloop, which parts of
  // other tiles take. All threads of a math warpgroup; sums [kW / 2] has the sums of the first
  // half, then of the second, each in the order of ptx::WgmmaSum.
  template <int32_t kW, int32_t kSteps, typename Stages, typename Scales>
  MOEJIT_DEVICE static void run(int32_t k_steps, const WarpgroupPart& part, const Scales& scales,
                                StageReader<Stages>& reader, float (&sums)[kW / 2]) {
    if constexpr (kW != 256) {
      PromotingMainloop<Multiply, 1>::template run<kW, kSteps>(k_steps, part, scales, reader, sums);
    } else {
      const PartOperands operands = part_operands<Multiply, Stages>(part);
      reader.wait();
      auto factors = scales.template half_factors<Stages>(reader.position.stage);
      if constexpr (goes_round<Stages>(kSteps)) {
        rounds<kSteps>(operands, scales, reader, factors, sums);
      } else {
#pragma unroll 1
        for (int32_t left = k_steps; left > 0; --left) {
          step(operands, left == 1, scales, reader, factors, sums);
        }
      }
    }
  }

 private:
  // One round would be no loop any more: ptxas begins the epilogue among its steps then, and has no
  // registers for that.
  template <typename Stages>
  MOEJIT_DEVICE static constexpr bool goes_round(int32_t steps) {
    return steps > Stages::kStages && steps % Stages::kStages == 0 && Stages::kStages <= 4;
  }

  // All steps of a tile. Each tile starts at the ring's first stage, so that the compiler knows all
  // of them.
  template <int32_t kSteps, typename Stages, typename Scales, typename Factors>
  MOEJIT_DEVICE static void rounds(const PartOperands& operands, const Scales& scales,
                                   StageReader<Stages>& reader, Factors& factors,
                                   float (&sums)[128]) {
#pragma unroll 1
    for (int32_t round = 1; round <= kSteps / Stages::kStages; ++round) {
#pragma unroll
      for (int32_t stage = 0; stage < Stages::kStages; ++stage) {
        reader.position.stage = stage;
        const bool is_last = stage == Stages::kStages - 1 && round == kSteps / Stages::kStages;
        step(operands, is_last, scales, reader, factors, sums);
      }
    }
  }

  // Does one step, whose stage is full. Takes its factors, and leaves the factors of the next step
  // if there is one.
  template <typename Stages, typename Scales, typename Factors>
  MOEJIT_DEVICE static void step(const PartOperands& operands, bool is_last, const Scales& scales,
                                 StageReader<Stages>& reader, Factors& factors,
                                 float (&sums)[128]) {
    constexpr int32_t kHalfBytes = 128 * 128;
    ptx::WgmmaSum<128> partial;  // of both in turn: there are no registers for two
    const int32_t stage = reader.position.stage;
    const auto m = operands.m + stage * Stages::kStageBytes;
    const auto n = operands.n + stage * Stages::kStageBytes;
    start(m, n, partial);
    ptx::wgmma_wait<0>(partial);
    Scales::template promote_half<0>(partial, factors, sums);
    start(m, n + kHalfBytes, partial);
    reader.position.advance();
    Factors next = factors;
    if (!is_last) {
      reader.wait();
      next = scales.template half_factors<Stages>(reader.position.stage);
    }
    ptx::sync_warp();  // all lanes have read this step's factors, a step ago
    ptx::wgmma_wait<0>(partial);
    reader.release(stage);
    Scales::template promote_half<1>(partial, factors, sums + 64);
    factors = next;
  }

  MOEJIT_DEVICE static void start(ptx::MatrixDescriptor m, ptx::MatrixDescriptor n,
                                  ptx::WgmmaSum<128>& partial) {
    ptx::wgmma_fence(partial);
    Multiply::run(partial, m, n, false);
    ptx::wgmma_commit();
  }
};

}  // namespace moejit::device
