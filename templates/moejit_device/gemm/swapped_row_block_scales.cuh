// SPDX-License-Identifier: Apache-2.0
#pragma once

// Scales of 1x128 blocks of A's rows and of 128x128 blocks of B for swapped tiles: rows of A are
// the columns of the sums, and one block of B is all of a tile.

#include "moejit_device/gemm/row_block_scale_reader.cuh"

namespace moejit::device {

// The factors of a thread's partial sums: column 8j + 2 * (lane % 4) + i has [2j + i].
template <int32_t kW>
struct ColumnFactors {
  float value[kW / 4];
};

template <typename Problem, typename Shape>
class SwappedRowBlockScales {
 public:
  static constexpr int32_t kSuppliers = ceil_div(Shape::kRows, 64);  // warps, of 64 rows each
  static constexpr bool kIsCopied = false;
  static constexpr int32_t kFactorBytes = kSuppliers * 64 * static_cast<int32_t>(sizeof(float));

  // All threads of a math warpgroup, before a tile.
  MOEJIT_DEVICE void start(const GemmTile&, const WarpgroupPart&) {}

  // Returns the factors of a full stage. Two neighboring columns are one load.
  template <int32_t kW, typename Stages>
  MOEJIT_DEVICE ColumnFactors<kW> factors(int32_t stage) const {
    const auto columns = Stages::template factors<FactorPair>(stage) + ptx::lane_index() % 4;
    ColumnFactors<kW> factors;
#pragma unroll
    for (int32_t j = 0; j < kW / 8; ++j) {
      const FactorPair pair = ptx::load(columns + 4 * j);
      factors.value[2 * j] = pair.first;
      factors.value[2 * j + 1] = pair.second;
    }
    return factors;
  }

  // sums = fma(partial, factor, sums).
  template <int32_t kW>
  MOEJIT_DEVICE static void promote(const ptx::WgmmaSum<kW>& partial,
                                    const ColumnFactors<kW>& factors, float (&sums)[kW / 2]) {
#pragma unroll
    for (int32_t i = 0; i < kW / 2; ++i) {
      sums[i] = ptx::fused_multiply_add(partial(i), factors.value[2 * (i / 4) + i % 2], sums[i]);
    }
  }

  // Writes the factors of a tile's steps, zeros for rows that it does not have. All lanes of a
  // supplier, 0 to kSuppliers - 1.
  template <typename Stages, typename Params>
  MOEJIT_DEVICE static void supply(const Params& params, int32_t supplier, const GemmTile& tile,
                                   typename Stages::Position& position) {
    const int32_t row = 64 * supplier;
    RowBlockScaleReader<Problem, 1> reader(params, tile, row);
    reader.each_step(tile.k_steps, [&](const RowFactors& factors) {
      supply_stage<Stages>(position, [&](int32_t stage) {
        const auto to = Stages::template factors<float>(stage) + (row + ptx::lane_index());
        ptx::store(to, factors.row.first);
        ptx::store(to + 32, factors.row_32.first);
      });
    });
  }
};

}  // namespace moejit::device
