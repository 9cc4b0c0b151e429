// SPDX-License-Identifier: Apache-2.0
#pragma once

// Scales of 1x128 blocks of A's rows and of 128x128 blocks of B for gated swapped tiles: rows of A
// are the columns of the sums, and a tile has one block of gate and one of up. A stage has the
// scales of the rows and the two of B; a math thread multiplies.

#include "moejit_device/gemm/row_block_scale_reader.cuh"

namespace moejit::device {

template <typename Problem, typename Shape>
class GatedSwappedRowBlockScales {
  static constexpr int32_t kScaleRows = ceil_div(Shape::kRows, 64) * 64;

 public:
  static constexpr int32_t kSuppliers = kScaleRows / 64;  // warps, of 64 rows each
  static constexpr bool kIsCopied = false;
  static constexpr int32_t kFactorBytes = kScaleRows * static_cast<int32_t>(sizeof(float)) + 16;

  // The scales of a thread's partial sums: column 8j + 2 * (lane % 4) + i has rows[2j + i].
  template <int32_t kW>
  struct Factors {
    float rows[kW / 4];
    FactorPair b;  // of gate and of up
  };

  // All threads of a math warpgroup, before a tile.
  MOEJIT_DEVICE void start(const GemmTile&, const WarpgroupPart&) {}

  // Returns the scales of a full stage. Two neighboring columns are one load.
  template <int32_t kW, typename Stages>
  MOEJIT_DEVICE Factors<kW> factors(int32_t stage) const {
    const auto first = Stages::template factors<FactorPair>(stage);
    const auto columns = first + ptx::lane_index() % 4;
    Factors<kW> factors;
    factors.b = ptx::load(first + kScaleRows / 2);
#pragma unroll
    for (int32_t j = 0; j < kW / 8; ++j) {
      const FactorPair pair = ptx::load(columns + 4 * j);
      factors.rows[2 * j] = pair.first;
      factors.rows[2 * j + 1] = pair.second;
    }
    return factors;
  }

  // sums = fma(partial, factor, sums), for sums [kW / 2]: gate in rows r of the sums, up in r + 8.
  template <int32_t kW>
  MOEJIT_DEVICE static void promote(const ptx::WgmmaSum<kW>& partial, const Factors<kW>& factors,
                                    float* sums) {
#pragma unroll
    for (int32_t i = 0; i < kW / 2; ++i) {
      const float b = i / 2 % 2 == 0 ? factors.b.first : factors.b.second;
      const float factor = ptx::multiply(factors.rows[2 * (i / 4) + i % 2], b);
      sums[i] = ptx::fused_multiply_add(partial(i), factor, sums[i]);
    }
  }

  // Writes the scales of a tile's steps, zeros for rows that it does not have. All lanes of a
  // supplier, 0 to kSuppliers - 1.
  template <typename Stages, typename Params>
  MOEJIT_DEVICE static void supply(const Params& params, int32_t supplier, const GemmTile& tile,
                                   typename Stages::Position& position) {
    const int32_t row = 64 * supplier;
    RowBlockScaleReader<Problem, 2> reader(params, tile, row);
    reader.each_scales(tile.k_steps, [&](const StepScales& scales) {
      supply_stage<Stages>(position, [&](int32_t stage) {
        const auto to = Stages::template factors<float>(stage) + (row + ptx::lane_index());
        ptx::store(to, scales.row);
        ptx::store(to + 32, scales.row_32);
        if (row + ptx::lane_index() == 0) {
          ptx::store(Stages::template factors<FactorPair>(stage) + kScaleRows / 2,
                     FactorPair{scales.first, scales.second});
        }
      });
    });
  }
};

}  // namespace moejit::device
