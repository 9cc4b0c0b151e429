// SPDX-License-Identifier: Apache-2.0
#pragma once

// The factors that partial sums are multiplied with, and promotion with them.
//
// Math warps load nothing from global memory and compute no factor: whatever stands between two
// multiplications delays the second. Warps of the producer multiply scales and leave the products
// in the stage whose operands they belong to.

#include "moejit_device/gemm/mainloop.cuh"
#include "moejit_device/ptx/convert.cuh"

namespace moejit::device {

// The factors of one row of sums: in columns of the tile's first block of B, and of its second.
// Tiles in one block use `first`.
struct alignas(8) FactorPair {
  float first;
  float second;
};

// The factors of a thread's partial sums: by row half (rows r and r + 8) and by kUnit columns.
template <int32_t kW>
struct ScaleFactors {
  static constexpr int32_t kUnits = kW % 64 == 0 ? kW / 64 : kW / 32;
  static constexpr int32_t kUnit = kW / kUnits;
  float value[2][kUnits];
};

// Which block of B the columns of a part belong to: those from `split` on, a multiple of 32, to the
// second. Parts of 128 columns and more are whole rows of tiles, whose first column is a multiple
// of 64: only their second 64 columns may belong to either.
template <int32_t kW>
MOEJIT_DEVICE ScaleFactors<kW> choose_by_column(const FactorPair& upper, const FactorPair& lower,
                                                int32_t split) {
  ScaleFactors<kW> factors;
#pragma unroll
  for (int32_t unit = 0; unit < factors.kUnits; ++unit) {
    const int32_t column = unit * factors.kUnit;
    const bool is_first = kW >= 128 && column != 64 ? column < 64 : column < split;
    factors.value[0][unit] = is_first ? upper.first : upper.second;
    factors.value[1][unit] = is_first ? lower.first : lower.second;
  }
  return factors;
}

// A supplier's step: once the next stage is empty, write(stage) puts factors there. All lanes of
// the supplying warp.
template <typename Stages, typename Write>
MOEJIT_DEVICE void supply_stage(typename Stages::Position& position, const Write& write) {
  ptx::wait(Stages::empty(position.stage), position.parity ^ 1);
  write(position.stage);
  ptx::sync_warp();  // all lanes have written
  if (ptx::lane_index() == 0) ptx::arrive(Stages::full(position.stage));
  position.advance();
}

// sums = fma(partial, factor, sums), for sums [kW / 2].
template <int32_t kW>
MOEJIT_DEVICE void promote_scaled(const ptx::WgmmaSum<kW>& partial, const ScaleFactors<kW>& factors,
                                  float* sums) {
#pragma unroll
  for (int32_t j = 0; j < kW / 8; ++j) {
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) {
      sums[4 * j + i] = ptx::fused_multiply_add(
          partial(4 * j + i), factors.value[i / 2][8 * j / ScaleFactors<kW>::kUnit],
          sums[4 * j + i]);
    }
  }
}

}  // namespace moejit::device
