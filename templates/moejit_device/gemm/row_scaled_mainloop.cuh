// SPDX-License-Identifier: Apache-2.0
#pragma once

// The main loop where every element of the sums has a factor of its own in each step. To form the
// factors takes as many multiplications as to promote. Behind the wait for the tensor cores these
// would lengthen the serial chain of mainloop.cuh by half; here nearly all are made while the
// tensor cores work, in registers that a tile of 128 columns leaves free: 64 sums, 64 partial sums,
// 64 factors.

#include "moejit_device/gemm/mainloop.cuh"

namespace moejit::device {

// Steps come in batches of four, for which the scales are fetched.
template <typename Multiply>
class RowScaledMainloop {
  static constexpr int32_t kBatchSteps = 4;

 public:
  static constexpr int32_t kStepElements = Multiply::kStepElements;

  // Adds the products of k_steps steps, 1 or more. All threads of a math warpgroup; sums [kW / 2]
  // in the order of ptx::WgmmaSum.
  template <int32_t kW, typename Stages, typename Queue, typename Scales>
  MOEJIT_DEVICE static void run(int32_t k_steps, const WarpgroupPart& part, const Queue& queue,
                                Scales& scales, StageReader<Stages>& reader,
                                float (&sums)[kW / 2]) {
    constexpr int32_t kRowBytes = 128;
    const auto a = ptx::matrix_descriptor(Stages::a(0)) + part.row * kRowBytes;
    const auto b = ptx::matrix_descriptor(Stages::b(0)) + part.column * kRowBytes;
    int32_t left = k_steps;
#pragma unroll 1
    for (; left >= kBatchSteps; left -= kBatchSteps) {
#pragma unroll
      for (int32_t i = 0; i < kBatchSteps; ++i) {
        const auto fetch = [&] {
          if (i == 0) scales.fetch_next(left == kBatchSteps, queue);
        };
        const auto advance = [&] {
          if (i + 1 == kBatchSteps) scales.advance();
        };
        step<kW>(a, b, i, scales, fetch, advance, reader, sums);
      }
    }
#pragma unroll 1
    for (int32_t i = 0; i < left; ++i) {
      const auto fetch = [&] {
        if (i == 0) scales.fetch_next(true, queue);
      };
      const auto advance = [&] {
        if (i + 1 == left) scales.advance();
      };
      step<kW>(a, b, i, scales, fetch, advance, reader, sums);
    }
  }

 private:
  // The step `i` of its batch. `fetch` and `advance` are what there is to do before and after its
  // scales are read, while the tensor cores work.
  template <int32_t kW, typename Stages, typename Scales, typename Fetch, typename Advance>
  MOEJIT_DEVICE static void step(ptx::MatrixDescriptor a, ptx::MatrixDescriptor b, int32_t i,
                                 Scales& scales, const Fetch& fetch, const Advance& advance,
                                 StageReader<Stages>& reader, float (&sums)[kW / 2]) {
    ptx::WgmmaSum<kW> partial;
    const int32_t stage = reader.position.stage;
    reader.wait();
    ptx::wgmma_fence(partial);
    Multiply::run(partial, a + stage * Stages::kStageBytes, b + stage * Stages::kStageBytes, false);
    ptx::wgmma_commit();
    ptx::sync_warp();  // else the assembler puts what follows between the products
    fetch();
    const auto factors = scales.template factors<kW>(i);
    advance();
    ptx::wgmma_wait<0>(partial);
    reader.release(stage);
    reader.position.advance();
    Scales::template promote<kW>(partial, factors, sums);
  }
};

}  // namespace moejit::device
