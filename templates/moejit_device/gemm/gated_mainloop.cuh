// SPDX-License-Identifier: Apache-2.0
#pragma once

// The main loop of tiles with two sections, gate and up. A math warpgroup has 64 rows and 128
// columns of each, so that gate and up of an element are in the same thread, and sums for both take
// 128 registers. There is room for one partial sum of 64 more: each step multiplies with the
// columns of gate, promotes, multiplies with those of up, promotes.

#include "moejit_device/gemm/mainloop.cuh"

namespace moejit::device {

// Steps come in batches of four, for which the scales are fetched.
template <typename Multiply>
class GatedMainloop {
  static constexpr int32_t kBatchSteps = 4;

 public:
  static constexpr int32_t kStepElements = Multiply::kStepElements;

  // Adds the products of k_steps steps, 1 or more. All threads of a math warpgroup; sums [kW / 2]
  // are those of gate, then of up, each in the order of ptx::WgmmaSum.
  template <int32_t kW, typename Stages, typename Queue, typename Scales>
  MOEJIT_DEVICE static void run(int32_t k_steps, const WarpgroupPart& part, const Queue& queue,
                                Scales& scales, StageReader<Stages>& reader,
                                float (&sums)[kW / 2]) {
    static_assert(kW == Stages::TileShape::kTileColumns, "whole rows of the tile");
    constexpr int32_t kRowBytes = 128;
    const auto a = ptx::matrix_descriptor(Stages::a(0)) + part.row * kRowBytes;
    const auto b = ptx::matrix_descriptor(Stages::b(0));
    int32_t left = k_steps;
#pragma unroll 1
    for (; left >= kBatchSteps; left -= kBatchSteps) {
#pragma unroll
      for (int32_t i = 0; i < kBatchSteps; ++i) {
        const auto shadow = [&] {
          if (i == 0) scales.fetch_next(left == kBatchSteps, queue);
        };
        const auto last_shadow = [&] {
          if (i + 1 == kBatchSteps) scales.advance();
        };
        step<kW / 2>(a, b, i, scales, shadow, last_shadow, reader, sums);
      }
    }
    // Whole batches leave no rest, which the compiler would find out late.
    if (k_steps % kBatchSteps == 0) return;
#pragma unroll 1
    for (int32_t i = 0; i < left; ++i) {
      const auto shadow = [&] {
        if (i == 0) scales.fetch_next(true, queue);
      };
      const auto last_shadow = [&] {
        if (i + 1 == left) scales.advance();
      };
      step<kW / 2>(a, b, i, scales, shadow, last_shadow, reader, sums);
    }
  }

 private:
  // The step `i` of its batch. The shadows are what there is to do while the tensor cores work on
  // gate, and on up, when all factors of the step have been handed out.
  template <int32_t kW, typename Stages, typename Scales, typename Shadow, typename LastShadow>
  MOEJIT_DEVICE static void step(ptx::MatrixDescriptor a, ptx::MatrixDescriptor b, int32_t i,
                                 Scales& scales, const Shadow& shadow,
                                 const LastShadow& last_shadow, StageReader<Stages>& reader,
                                 float* sums) {
    ptx::WgmmaSum<kW> partial;
    const int32_t stage = reader.position.stage;
    const auto step_a = a + stage * Stages::kStageBytes;
    const auto step_b = b + stage * Stages::kStageBytes;
    reader.wait();
    ptx::wgmma_fence(partial);
    const auto gate_factors = scales.template section_factors<kW, 0>(i);
    Multiply::run(partial, step_a, step_b, false);
    ptx::wgmma_commit();
    shadow();
    ptx::wgmma_wait<0>(partial);
    Scales::template promote<kW>(partial, gate_factors, sums);

    ptx::wgmma_fence(partial);
    const auto up_factors = scales.template section_factors<kW, 1>(i);
    Multiply::run(partial, step_a, step_b + Stages::kSectionBytesB, false);
    ptx::wgmma_commit();
    last_shadow();
    ptx::wgmma_wait<0>(partial);
    reader.release(stage);
    reader.position.advance();
    Scales::template promote<kW>(partial, up_factors, sums + kW / 2);
  }
};

}  // namespace moejit::device
