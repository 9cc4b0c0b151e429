// SPDX-License-Identifier: Apache-2.0
#pragma once

// Scales of 1x128 blocks of the rows of both operands, as a row-wise quantizer leaves them: in each
// step every element of the sums has a factor of its own, the scale of its row of A times that of
// its row of B. Supplied are the scales; to multiply them takes a thread as many instructions as it
// has sums.

#include "moejit_device/gemm/scale_factors.cuh"
#include "moejit_device/ptx/memory.cuh"

namespace moejit::device {

// The factors of partial sums, in the order of ptx::WgmmaSum.
template <int32_t kW>
struct ElementFactors {
  float value[kW / 2];
};

template <typename Problem, typename Shape>
class RowScales {
  static constexpr int32_t kRows = Shape::kRows;
  static constexpr int32_t kLines = kRows + Shape::kTileColumns;  // of A, then of B
  static_assert(kLines % 32 == 0, "lanes bring whole rounds");

 public:
  static constexpr int32_t kSuppliers = 0;  // the warp that walks over the tiles supplies
  static constexpr int32_t kFactorBytes = kLines * static_cast<int32_t>(sizeof(float));

  // Sets the place of the part's rows. Called by all threads of a math warpgroup before a tile.
  MOEJIT_DEVICE void start(const GemmTile&, const WarpgroupPart& part) {
    row_ = part.row + ptx::warp_index() % 4 * 16 + ptx::lane_index() / 4;
  }

  // Returns the factors of a full stage.
  template <int32_t kW, typename Stages>
  MOEJIT_DEVICE ElementFactors<kW> factors(int32_t stage) const {
    const auto scales = Stages::template factors<float>(stage);
    const auto columns = ptx::as<FactorPair>(scales + kRows) + ptx::lane_index() % 4;
    const float upper = ptx::load(scales + row_);
    const float lower = ptx::load(scales + (row_ + 8));
    ElementFactors<kW> factors;
#pragma unroll
    for (int32_t j = 0; j < kW / 8; ++j) {
      const FactorPair pair = ptx::load(columns + 4 * j);
      factors.value[4 * j] = ptx::multiply(upper, pair.first);
      factors.value[4 * j + 1] = ptx::multiply(upper, pair.second);
      factors.value[4 * j + 2] = ptx::multiply(lower, pair.first);
      factors.value[4 * j + 3] = ptx::multiply(lower, pair.second);
    }
    return factors;
  }

  // sums = fma(partial, factor, sums).
  template <int32_t kW>
  MOEJIT_DEVICE static void promote(const ptx::WgmmaSum<kW>& partial,
                                    const ElementFactors<kW>& factors, float (&sums)[kW / 2]) {
#pragma unroll
    for (int32_t i = 0; i < kW / 2; ++i) {
      sums[i] = ptx::fused_multiply_add(partial(i), factors.value[i], sums[i]);
    }
  }

  // Writes the scales of a tile's steps. Each lane has every 32nd row of A and of B, and fetches a
  // step ahead. Rows and columns beyond D have zeros. All lanes of a warp.
  template <typename Stages, typename Params>
  MOEJIT_DEVICE static void supply(const Params& params, int32_t, const GemmTile& tile,
                                   typename Stages::Position& position) {
    const int32_t lane = ptx::lane_index();
    const int32_t pitch = static_cast<int32_t>(params.columns / 128);  // scales of a row
    const int32_t first = tile.k_begin / 128;
    const auto a = ptx::global(params.a_scale_inv) + ((tile.a_row + lane) * pitch + first);
    const auto b = ptx::global(params.b_scale_inv) + ((tile.b_row + lane) * pitch + first);
    float next[kLines / 32];
    const auto fetch = [&](int32_t step) {
      const int32_t rows_left = step < tile.k_steps ? tile.rows - lane : 0;
      const int32_t columns_left = step < tile.k_steps ? Problem::kN - tile.column - lane : 0;
#pragma unroll
      for (int32_t i = 0; i < kRows; i += 32) {
        next[i / 32] = i < rows_left ? ptx::load(a + (i * pitch + step)) : 0.0f;
      }
#pragma unroll
      for (int32_t i = 0; i < Shape::kTileColumns; i += 32) {
        next[(kRows + i) / 32] = i < columns_left ? ptx::load(b + (i * pitch + step)) : 0.0f;
      }
    };
    fetch(0);
#pragma unroll 1
    for (int32_t step = 0; step < tile.k_steps; ++step) {
      supply_stage<Stages>(position, [&](int32_t stage) {
        const auto to = Stages::template factors<float>(stage) + lane;
#pragma unroll
        for (int32_t line = 0; line < kLines; line += 32) ptx::store(to + line, next[line / 32]);
      });
      fetch(step + 1);
    }
  }

 private:
  int32_t row_;  // of the tile, this thread's first
};

}  // namespace moejit::device
