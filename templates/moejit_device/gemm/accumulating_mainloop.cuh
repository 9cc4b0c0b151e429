// SPDX-License-Identifier: Apache-2.0
#pragma once

// The main loop where nothing is promoted: all steps are one chain of WGMMA. A step's products are
// started while the products of the step before run, and no warp stands between the two. A stage is
// therefore given back one step late.
//
// The tensor cores add bf16 products in fp32, and for these one chain over all of the contraction
// is as good as any other order. They keep only about 14 significant bits of sums of e4m3 products,
// so a long chain gives bits away for its speed.

#include "moejit_device/gemm/mainloop.cuh"
#include "moejit_device/gemm/no_scales.cuh"

namespace moejit::device {

template <typename Multiply>
class AccumulatingMainloop {
 public:
  using Multiplier = Multiply;

  // Adds the products of k_steps steps, 1 or more, to sums that are 0. All threads of a math
  // warpgroup; sums [kW / 2] in the order of ptx::WgmmaSum. `scales` is NoScales or GroupTail.
  template <int32_t kW, int32_t, typename Stages, typename Scales>
  MOEJIT_DEVICE static void run(int32_t k_steps, const WarpgroupPart& part, const Scales& scales,
                                StageReader<Stages>& reader, float (&sums)[kW / 2]) {
    const PartOperands operands = part_operands<Multiply, Stages>(part);
    ptx::WgmmaSum<kW> total;
    chain<kW>(k_steps, operands, scales, reader, total);
#pragma unroll
    for (int32_t i = 0; i < kW / 2; ++i) sums[i] = total(i);
  }

 private:
  // sum = the products of `steps` steps, 1 or more, complete and readable.
  template <int32_t kW, typename Stages, typename Scales>
  MOEJIT_DEVICE static void chain(int32_t steps, const PartOperands& operands, const Scales& scales,
                                  StageReader<Stages>& reader, ptx::WgmmaSum<kW>& sum) {
    int32_t before = reader.position.stage;
    reader.wait();
    if constexpr (Scales::kEndsGroups) {
      if (steps == 1) scales.template end_group<Multiply, Stages>(before);
    }
    ptx::wgmma_fence(sum);
    multiply<Stages>(operands, before, false, sum);
    reader.position.advance();
#pragma unroll 1
    for (int32_t step = 1; step < steps; ++step) {
      const int32_t stage = reader.position.stage;
      reader.wait();
      if constexpr (Scales::kEndsGroups) {
        if (step + 1 == steps) scales.template end_group<Multiply, Stages>(stage);
      }
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
