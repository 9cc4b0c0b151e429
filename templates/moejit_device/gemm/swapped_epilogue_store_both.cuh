// SPDX-License-Identifier: Apache-2.0
#pragma once

// Stores gate and up of swapped tiles as well as what another epilogue makes of them, for callers
// who keep intermediates: element by element, since nobody waits for it.

#include "moejit_device/gemm/tile.cuh"
#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/ptx/convert.cuh"
#include "moejit_device/ptx/memory.cuh"

namespace moejit::device {

template <typename Problem, typename Shape, typename Epilogue>
class SwappedEpilogueStoreBoth {
  static constexpr int32_t kProducts = Shape::kProducts;

 public:
  template <typename>
  static constexpr int32_t kStagingBytes = Epilogue::template kStagingBytes<Shape>;

  static constexpr bool kHasStorers = false;

  // `staging` is the warpgroup's own.
  MOEJIT_DEVICE explicit SwappedEpilogueStoreBoth(ptx::SharedPtr<Bytes16> staging)
      : epilogue_(staging) {}

  // All threads of a math warpgroup.
  template <int32_t kW, typename Params>
  MOEJIT_DEVICE void run(const Params& params, const GemmTile& tile, const WarpgroupPart& part,
                         const float (&sums)[kW / 2]) const {
    constexpr int32_t kProductSums = kW / 2 / kProducts;
    const int32_t warp_column = ptx::warp_index() % 4 * 8 + ptx::lane_index() / 4;
    const int32_t lane_row = ptx::lane_index() % 4 * 2;
#pragma unroll
    for (int32_t i = 0; i < kW / 2; ++i) {
      const int32_t row = i % kProductSums / 4 * 8 + lane_row + i % 2;
      const int32_t column = tile.column + part.column / 2 + i / kProductSums * 32 + warp_column;
      const float sum = row < tile.rows ? sums[i] : 0.0f;
      store(params, tile, row, i / 2 % 2, column, sum);
    }
    // Pad rows below the ones that are multiplied.
    const int32_t thread = ptx::thread_index() % ptx::kWarpgroupThreads;
    for (int32_t row = kW / kProducts + thread / 32; row < tile.padded_rows; row += 4) {
      for (int32_t i = 0; i < 2 * kProducts; ++i)
        store(params, tile, row, i % 2, tile.column + part.column / 2 + i / 2 * 32 + thread % 32,
              0.0f);
    }
    epilogue_.template run<kW>(params, tile, part, sums);
  }

  // Before the CTA ends.
  MOEJIT_DEVICE void finish() const { epilogue_.finish(); }

 private:
  template <typename Params>
  MOEJIT_DEVICE static void store(const Params& params, const GemmTile& tile, int32_t row,
                                  int32_t section, int32_t column, float value) {
    if (row >= tile.padded_rows || column >= Problem::kSectionN) return;
    const int32_t at =
        Shape::kAlternates ? 2 * column + section : section * Problem::kSectionN + column;
    ptx::store(
        ptx::as<uint16_t>(ptx::global(params.d)) + ((int64_t{tile.d_row} + row) * Problem::kN + at),
        static_cast<uint16_t>(ptx::bf16_pair(value, 0.0f)));
  }

  Epilogue epilogue_;
};

}  // namespace moejit::device
