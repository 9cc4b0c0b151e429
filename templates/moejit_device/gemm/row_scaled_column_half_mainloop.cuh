// SPDX-License-Identifier: Apache-2.0
#pragma once

// The main loop of row_scaled_mainloop.cuh for parts of 128 rows and half of the tile's columns
// (ColumnHalf). A step is two products of 64 rows, which share B and the factors of its columns:
// half as many as parts of all columns need, so that registers hold them all and no load is left
// behind the products. The lower rows' product runs while the upper ones' is promoted. A trial took
// 1259 cycles a step on an H100 instead of 1356 (docs/performance/tried.md).

#include "moejit_device/gemm/mainloop.cuh"
#include "moejit_device/gemm/row_scales.cuh"

namespace moejit::device {

template <typename Multiply>
class RowScaledColumnHalfMainloop {
 public:
  using Multiplier = Multiply;

  // Adds the products of k_steps steps, 1 or more. All threads of a math warpgroup; sums [kW / 2]
  // of the upper 64 rows, then of the lower ones, each in the order of ptx::WgmmaSum.
  template <int32_t kW, int32_t, typename Stages, typename Scales>
  MOEJIT_DEVICE static void run(int32_t k_steps, const WarpgroupPart& part, const Scales& scales,
                                StageReader<Stages>& reader, float (&sums)[kW / 2]) {
    static_assert(Stages::TileShape::Part::kRows == 128, "two products of 64 rows");
    constexpr int32_t kColumns = kW / 2;
    constexpr int32_t kLowerRows = 64 * 128;  // bytes of A before them
    const auto [m, n] = part_operands<Multiply, Stages>(part);
    ptx::WgmmaSum<kColumns> upper, lower;
#pragma unroll 1
    for (int32_t step = 0; step < k_steps; ++step) {
      const int32_t stage = reader.position.stage;
      reader.wait();
      FactorPair columns[kColumns / 8];
#pragma unroll
      for (int32_t j = 0; j < kColumns / 8; ++j)
        columns[j] = scales.template columns<Stages>(stage, j);
      const RowFactors upper_rows = scales.template rows<Stages>(stage, 0);
      const RowFactors lower_rows = scales.template rows<Stages>(stage, 1);
      ptx::wgmma_fence(upper, lower);
      issue<Stages>(upper, m, n, stage);
      issue<Stages>(lower, m + kLowerRows, n, stage);
      ptx::sync_warp();  // else the assembler puts what follows between the products
      ptx::wgmma_wait<1>(upper);
      promote<Scales>(upper, upper_rows, columns, sums);
      reader.wait();  // is over: its branch ends a basic block that would spill in some kernels
      ptx::wgmma_wait<0>(lower);
      ptx::sync_warp();  // all lanes have read the factors
      reader.release(stage);
      promote<Scales>(lower, lower_rows, columns, sums + kColumns / 2);
      reader.position.advance();
    }
  }

 private:
  template <typename Stages, int32_t kColumns>
  MOEJIT_DEVICE static void issue(ptx::WgmmaSum<kColumns>& sum, ptx::MatrixDescriptor m,
                                  ptx::MatrixDescriptor n, int32_t stage) {
    Multiply::run(sum, m + stage * Stages::kStageBytes, n + stage * Stages::kStageBytes, false);
    ptx::wgmma_commit();
  }
  // sums [kColumns / 2]
  template <typename Scales, int32_t kColumns>
  MOEJIT_DEVICE static void promote(const ptx::WgmmaSum<kColumns>& partial, const RowFactors& rows,
                                    const FactorPair (&columns)[kColumns / 8], float* sums) {
#pragma unroll
    for (int32_t j = 0; j < kColumns / 8; ++j)
      Scales::promote(partial, rows, columns[j], j, sums + 4 * j);
  }
};

}  // namespace moejit::device
