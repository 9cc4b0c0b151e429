// SPDX-License-Identifier: Apache-2.0
#pragma once

// Scales of 1x128 blocks of A's rows and of 128x128 blocks of B for tiles of 256 columns: each half
// of them is in one block. A stage has the scales of the rows and the two of B, half of the bytes
// that factors would take, so that four stages fit into shared memory; a math thread has two rows
// and multiplies.

#include "moejit_device/gemm/row_block_scale_reader.cuh"

namespace moejit::device {

template <typename Problem, typename Shape>
class HalvedRowBlockScales {
  static constexpr int32_t kRows = Shape::kRows;

 public:
  static constexpr int32_t kSuppliers = kRows / 64;  // warps, of 64 rows each
  static constexpr bool kIsCopied = false;
  static constexpr int32_t kFactorBytes = kRows * static_cast<int32_t>(sizeof(float)) + 16;

  // The factors of rows r and r + 8 in the columns of both halves.
  struct HalfFactors {
    FactorPair upper;
    FactorPair lower;
  };

  // Sets the place of the part's rows and columns. Called by all threads of a math warpgroup before
  // a tile.
  MOEJIT_DEVICE void start(const GemmTile&, const WarpgroupPart& part) {
    row_ = part.row + ptx::warp_index() % 4 * 16 + ptx::lane_index() / 4;
    is_second_ = part.column >= 128;
  }

  // Returns the factors of a full stage for both halves.
  template <typename Stages>
  MOEJIT_DEVICE HalfFactors half_factors(int32_t stage) const {
    const auto rows = Stages::template factors<float>(stage);
    const float upper = ptx::load(rows + row_);
    const float lower = ptx::load(rows + (row_ + 8));
    const FactorPair b = ptx::load(Stages::template factors<FactorPair>(stage) + kRows / 2);
    return {{ptx::multiply(upper, b.first), ptx::multiply(upper, b.second)},
            {ptx::multiply(lower, b.first), ptx::multiply(lower, b.second)}};
  }

  // Promotes the partial sums of a half; sums [64].
  template <int32_t kHalf>
  MOEJIT_DEVICE static void promote_half(const ptx::WgmmaSum<128>& partial,
                                         const HalfFactors& factors, float* sums) {
    const float upper = kHalf == 0 ? factors.upper.first : factors.upper.second;
    const float lower = kHalf == 0 ? factors.lower.first : factors.lower.second;
    promote_scaled<128>(partial, {{{upper, upper}, {lower, lower}}}, sums);
  }

  // Returns the factors of a full stage for a part of up to 128 columns, which are in one block.
  template <int32_t kW, typename Stages>
  MOEJIT_DEVICE ScaleFactors<kW> factors(int32_t stage) const {
    const HalfFactors both = half_factors<Stages>(stage);
    const float upper = is_second_ ? both.upper.second : both.upper.first;
    const float lower = is_second_ ? both.lower.second : both.lower.first;
    return choose_by_column<kW>({upper, upper}, {lower, lower}, 0);
  }

  template <int32_t kW>
  MOEJIT_DEVICE static void promote(const ptx::WgmmaSum<kW>& partial,
                                    const ScaleFactors<kW>& factors, float* sums) {
    promote_scaled<kW>(partial, factors, sums);
  }

  // Writes the scales of a tile's steps. All lanes of a supplier, 0 to kSuppliers - 1.
  template <typename Stages, typename Params>
  MOEJIT_DEVICE static void supply(const Params& params, int32_t supplier, const GemmTile& tile,
                                   typename Stages::Position& position) {
    const int32_t row = 64 * supplier;
    RowBlockScaleReader<Problem, Shape::kTileSections> reader(params, tile, row);
    reader.each_scales(tile.k_steps, [&](const StepScales& scales) {
      supply_stage<Stages>(position, [&](int32_t stage) {
        const auto to = Stages::template factors<float>(stage) + row + ptx::lane_index();
        ptx::store(to, scales.row);
        ptx::store(to + 32, scales.row_32);
        if (row + ptx::lane_index() == 0) {
          ptx::store(Stages::template factors<FactorPair>(stage) + kRows / 2,
                     FactorPair{scales.first, scales.second});
        }
      });
    });
  }

 private:
  int32_t row_;     // of the tile, this thread's first
  bool is_second_;  // whether a part that has one half has the second
};

}  // namespace moejit::device
