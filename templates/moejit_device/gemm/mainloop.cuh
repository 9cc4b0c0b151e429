// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a math warpgroup does with the stages: it multiplies 64 rows of the m side of WGMMA with kW
// of the n side and keeps the sums in registers. The m side is A, or B where the tiles are swapped.
//
// The tensor cores add e4m3 products with about 14 significant bits, and scales change along the
// contraction. So the partial sums of one scale block, or of two that share their scales, are
// multiplied with their scales and added to sums in ordinary fp32 registers: promotion. That is
// what such a kernel is limited by: multiply, wait, promote, multiply is a serial chain, and the
// other warpgroup has to keep the tensor cores busy meanwhile. Nothing else belongs in between.

#include "moejit_device/gemm/pipeline.cuh"
#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/ptx/wgmma.cuh"

namespace moejit::device {

// What a step of the contraction is, which dimension of the operands is contiguous, whether they
// lie in memory step after step, each a matrix of its own, and whether B is packed.
struct MultiplyE4m3 {
  static constexpr int32_t kStepElements = 128;
  static constexpr bool kIsBlocked = false;
  static constexpr bool kIsPackedB = false;
  static constexpr auto kMajorA = ptx::Major::kK;
  static constexpr auto kMajorB = ptx::Major::kK;
  template <int32_t kW>
  MOEJIT_DEVICE static void run(ptx::WgmmaSum<kW>& sum, ptx::MatrixDescriptor a,
                                ptx::MatrixDescriptor b, bool accumulate) {
    ptx::wgmma_rows_e4m3(sum, a, b, accumulate);
  }
};

// Operands [K / 128, rows, 128].
struct MultiplyBlockedE4m3 : MultiplyE4m3 {
  static constexpr bool kIsBlocked = true;
};

// The m side of WGMMA is e5m2, the n side e4m3.
struct MultiplyE5m2E4m3 : MultiplyE4m3 {
  template <int32_t kW>
  MOEJIT_DEVICE static void run(ptx::WgmmaSum<kW>& sum, ptx::MatrixDescriptor m,
                                ptx::MatrixDescriptor n, bool accumulate) {
    ptx::wgmma_rows_e5m2_e4m3(sum, m, n, accumulate);
  }
};
struct MultiplyBlockedE5m2E4m3 : MultiplyE5m2E4m3 {
  static constexpr bool kIsBlocked = true;
};

// The other way round, for swapped tiles.
struct MultiplyE4m3E5m2 : MultiplyE4m3 {
  template <int32_t kW>
  MOEJIT_DEVICE static void run(ptx::WgmmaSum<kW>& sum, ptx::MatrixDescriptor m,
                                ptx::MatrixDescriptor n, bool accumulate) {
    ptx::wgmma_rows_e4m3_e5m2(sum, m, n, accumulate);
  }
};

template <ptx::Major kMajorAValue, ptx::Major kMajorBValue>
struct MultiplyBf16 {
  static constexpr int32_t kStepElements = 64;
  static constexpr bool kIsBlocked = false;
  static constexpr bool kIsPackedB = false;
  static constexpr auto kMajorA = kMajorAValue;
  static constexpr auto kMajorB = kMajorBValue;
  template <int32_t kW>
  MOEJIT_DEVICE static void run(ptx::WgmmaSum<kW>& sum, ptx::MatrixDescriptor a,
                                ptx::MatrixDescriptor b, bool accumulate) {
    ptx::wgmma_steps_bf16<kMajorA, kMajorB>(sum, a, b, accumulate);
  }
};

// A math warp's side of the pipeline.
template <typename Stages>
struct StageReader {
  typename Stages::Position position;

  MOEJIT_DEVICE void wait() const { ptx::wait(Stages::full(position.stage), position.parity); }
  // The products that used the stage are complete.
  MOEJIT_DEVICE static void release(int32_t stage) { Stages::release(stage); }
  // Lets stages pass that others use.
  MOEJIT_DEVICE void skip(int32_t steps) {
    for (int32_t step = 0; step < steps; ++step) {
      wait();
      ptx::sync_warp();  // no lane still waits for this round of the ring
      release(position.stage);
      position.advance();
    }
  }
};

// A part's rows of the operands in the ring's first stage: of the m side of WGMMA and of the n
// side.
struct PartOperands {
  ptx::MatrixDescriptor m;
  ptx::MatrixDescriptor n;
};

template <ptx::Major kMajor>
MOEJIT_DEVICE ptx::MatrixDescriptor operand_descriptor(ptx::SharedPtr<Bytes16> operand) {
  if constexpr (kMajor == ptx::Major::kMn) return ptx::mn_major_descriptor(operand);
  return ptx::matrix_descriptor(operand);
}

template <typename Multiply, typename Stages>
MOEJIT_DEVICE PartOperands part_operands(const WarpgroupPart& part) {
  constexpr bool kIsSwapped = Stages::TileShape::kIsSwapped;
  static_assert(!kIsSwapped || Multiply::kMajorA == Multiply::kMajorB, "A stays A to WGMMA");
  constexpr int32_t kRowBytes = 128;  // of an element of M or N, 64 of which are a box if MN-major
  const auto a = operand_descriptor<Multiply::kMajorA>(Stages::a(0)) + part.row * kRowBytes;
  const auto b = operand_descriptor<Multiply::kMajorB>(Stages::b(0)) + part.column * kRowBytes;
  return {.m = kIsSwapped ? b : a, .n = kIsSwapped ? a : b};
}

// Promotes after every kBlocksPerPromotion steps, 1 or 2. With 2, both steps are one chain of WGMMA
// and must share their scales.
template <typename Multiply, int32_t kBlocksPerPromotion>
class PromotingMainloop {
  static_assert(kBlocksPerPromotion == 1 || kBlocksPerPromotion == 2, "one step or two");

 public:
  using Multiplier = Multiply;

  // Adds the products of k_steps steps, 1 or more; where all tiles have the same, kSteps is that
  // number, else 0. All threads of a math warpgroup; sums [kW / 2] in the order of ptx::WgmmaSum.
  template <int32_t kW, int32_t kSteps, typename Stages, typename Scales>
  MOEJIT_DEVICE static void run(int32_t k_steps, const WarpgroupPart& part, const Scales& scales,
                                StageReader<Stages>& reader, float (&sums)[kW / 2]) {
    using Shape = typename Stages::TileShape;
    const auto [m, n] = part_operands<Multiply, Stages>(part);
    // Narrower parts are rare: they are spared the code of an unrolled loop.
    constexpr bool kIsUnrolled = Shape::template kUnrolls<kW>;
    if constexpr (kIsUnrolled && goes_round<Stages>(kSteps)) {
      // Each tile starts at the ring's first stage, so that the compiler knows all of them.
#pragma unroll 1
      for (int32_t round = 0; round < kSteps / Stages::kStages; ++round) {
#pragma unroll
        for (int32_t stage = 0; stage < Stages::kStages; stage += kBlocksPerPromotion) {
          reader.position.stage = stage;
          multiply<kW>(m, n, scales, reader, sums);
        }
      }
    } else {
      constexpr int32_t kUnroll = kIsUnrolled ? 4 / kBlocksPerPromotion : 1;
      int32_t left = k_steps;
#pragma unroll kUnroll
      for (; left >= kBlocksPerPromotion; left -= kBlocksPerPromotion) {
        multiply<kW>(m, n, scales, reader, sums);
      }
      if (kBlocksPerPromotion == 2 && left > 0) single<kW>(m, n, scales, reader, sums);
    }
  }

 private:
  template <typename Stages>
  MOEJIT_DEVICE static constexpr bool goes_round(int32_t steps) {
    return steps > 0 && steps % Stages::kStages == 0 && Stages::kStages <= 4 &&
           Stages::kStages % kBlocksPerPromotion == 0;
  }

  // The steps up to the next promotion.
  template <int32_t kW, typename Stages, typename Scales>
  MOEJIT_DEVICE static void multiply(ptx::MatrixDescriptor m, ptx::MatrixDescriptor n,
                                     const Scales& scales, StageReader<Stages>& reader,
                                     float (&sums)[kW / 2]) {
    if constexpr (kBlocksPerPromotion == 2) {
      pair<kW>(m, n, scales, reader, sums);
    } else {
      single<kW>(m, n, scales, reader, sums);
    }
  }

  template <int32_t kW, typename Stages, typename Scales>
  MOEJIT_DEVICE static void single(ptx::MatrixDescriptor m, ptx::MatrixDescriptor n,
                                   const Scales& scales, StageReader<Stages>& reader,
                                   float (&sums)[kW / 2]) {
    ptx::WgmmaSum<kW> partial;
    const int32_t stage = reader.position.stage;
    reader.wait();
    const auto factors = scales.template factors<kW, Stages>(stage);
    ptx::wgmma_fence(partial);
    Multiply::run(partial, m + stage * Stages::kStageBytes, n + stage * Stages::kStageBytes, false);
    ptx::wgmma_commit();
    ptx::sync_warp();  // all lanes have read the factors
    ptx::wgmma_wait<0>(partial);
    reader.release(stage);
    reader.position.advance();
    Scales::template promote<kW>(partial, factors, sums);
  }

  template <int32_t kW, typename Stages, typename Scales>
  MOEJIT_DEVICE static void pair(ptx::MatrixDescriptor m, ptx::MatrixDescriptor n,
                                 const Scales& scales, StageReader<Stages>& reader,
                                 float (&sums)[kW / 2]) {
    ptx::WgmmaSum<kW> partial;
    const int32_t first = reader.position.stage;
    reader.wait();
    const auto factors = scales.template factors<kW, Stages>(first);
    ptx::wgmma_fence(partial);
    Multiply::run(partial, m + first * Stages::kStageBytes, n + first * Stages::kStageBytes, false);
    ptx::wgmma_commit();
    reader.position.advance();
    const int32_t second = reader.position.stage;
    reader.wait();
    ptx::wgmma_fence();
    Multiply::run(partial, m + second * Stages::kStageBytes, n + second * Stages::kStageBytes,
                  true);
    ptx::wgmma_commit();
    ptx::sync_warp();  // all lanes have read the factors
    ptx::wgmma_wait<1>();
    reader.release(first);
    ptx::wgmma_wait<0>(partial);
    reader.release(second);
    reader.position.advance();
    Scales::template promote<kW>(partial, factors, sums);
  }
};

}  // namespace moejit::device
