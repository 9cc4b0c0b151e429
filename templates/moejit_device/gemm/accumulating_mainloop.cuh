// SPDX-License-Identifier: Apache-2.0
#pragma once

// The main loop where no scale changes along the contraction: partial sums need not meet one, so
// steps are one chain of WGMMA. A step's products are started while those of the step before run,
// and no warp stands between the two; a stage is therefore given back one step late.
//
// How long a chain may be is a question of accuracy. The tensor cores add bf16 products in fp32,
// and for these one chain over all of the contraction is as good as any other order. Of e4m3
// products they keep about 14 significant bits, so that a long chain gives bits away for its speed;
// otherwise chains of kStepsPerPromotion are added up in ordinary fp32 registers.

#include "moejit_device/gemm/mainloop.cuh"
#include "moejit_device/gemm/no_scales.cuh"
#include "moejit_device/ptx/convert.cuh"

namespace moejit::device {

// kStepsPerPromotion 0: all steps are one chain.
template <typename Multiply, int32_t kStepsPerPromotion = 0>
class AccumulatingMainloop {
 public:
  using Multiplier = Multiply;

  // Adds the products of k_steps steps, 1 or more, to sums that are 0. All threads of a math
  // warpgroup; sums [kW / 2] in the order of ptx::WgmmaSum.
  template <int32_t kW, int32_t, typename Stages>
  MOEJIT_DEVICE static void run(int32_t k_steps, const WarpgroupPart& part, const NoScales&,
                                StageReader<Stages>& reader, float (&sums)[kW / 2]) {
    const PartOperands operands = part_operands<Multiply, Stages>(part);
    if constexpr (kStepsPerPromotion == 0) {
      ptx::WgmmaSum<kW> total;
      chain<kW>(k_steps, operands, reader, total);
#pragma unroll
      for (int32_t i = 0; i < kW / 2; ++i) sums[i] = total(i);
    } else {
#pragma unroll 1
      for (int32_t left = k_steps; left > 0; left -= kStepsPerPromotion) {
        ptx::WgmmaSum<kW> partial;
        chain<kW>(smaller(left, kStepsPerPromotion), operands, reader, partial);
#pragma unroll
        for (int32_t i = 0; i < kW / 2; ++i) sums[i] = ptx::add(sums[i], partial(i));
      }
    }
  }

 private:
  // sum = the products of `steps` steps, 1 or more, complete and readable.
  template <int32_t kW, typename Stages>
  MOEJIT_DEVICE static void chain(int32_t steps, const PartOperands& operands,
                                  StageReader<Stages>& reader, ptx::WgmmaSum<kW>& sum) {
    int32_t before = reader.position.stage;
    reader.wait();
    ptx::wgmma_fence(sum);
    multiply<Stages>(operands, before, false, sum);
    reader.position.advance();
#pragma unroll 1
    for (int32_t step = 1; step < steps; ++step) {
      const int32_t stage = reader.position.stage;
      reader.wait();
      ptx::wgmma_fence();
      multiply<Stages>(operands, stage, true, sum);
      ptx::wgmma_wait<1>();
      reader.release(before);
      before = stage;
      reader.position.advance();
    }
    ptx::wgmma_wait<0>(sum);
    reader.release(before);
  }

  // Starts the products of a stage.
  template <typename Stages, int32_t kW>
  MOEJIT_DEVICE static void multiply(const PartOperands& operands, int32_t stage, bool accumulate,
                                     ptx::WgmmaSum<kW>& sum) {
    const int32_t offset = stage * Stages::kStageBytes;
    Multiply::run(sum, operands.m + offset, operands.n + offset, accumulate);
    ptx::wgmma_commit();
  }
};

}  // namespace moejit::device
