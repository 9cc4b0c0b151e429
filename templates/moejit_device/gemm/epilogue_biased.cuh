// SPDX-License-Identifier: Apache-2.0
#pragma once

// Biases: added to complete sums, which then go on to another epilogue. A group's bias has one
// element for each column of D. The element may be multiplied with the probability of the row.

#include "moejit_device/gemm/tile.cuh"
#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/ptx/convert.cuh"
#include "moejit_device/ptx/memory.cuh"

namespace moejit::device {

// A group's bias [N], or with kInterleaved [N / 2, 2], while D has the two halves of N one behind
// the other, in one section or in two.
template <typename Problem, bool kInterleaved>
struct GroupBias {
  ptx::GlobalPtr<const uint16_t> bias;

  MOEJIT_DEVICE static GroupBias of(const Bf16* bias, int32_t group) {
    return {ptx::as<const uint16_t>(ptx::global(bias)) + static_cast<int64_t>(group) * Problem::kN};
  }
  // Returns the bias of a column of a section; 0 past it.
  MOEJIT_DEVICE float value(int32_t section, int32_t column) const {
    if (column >= Problem::kSectionN) return 0.0f;
    int32_t at = section * Problem::kSectionN + column;
    if constexpr (kInterleaved) {
      constexpr int32_t kHalf = Problem::kN / 2;
      at = at < kHalf ? 2 * at : 2 * (at - kHalf) + 1;
    }
    return ptx::float_from_bits(static_cast<uint32_t>(ptx::load(bias + at)) << 16);
  }
};

template <bool kTimesProb>
MOEJIT_DEVICE float with_bias(float sum, float bias, float prob) {
  return kTimesProb ? ptx::fused_multiply_add(bias, prob, sum) : ptx::add(sum, bias);
}

// Adds the bias to tiles whose rows are rows of D, in one section.
template <typename Problem, bool kTimesProb, bool kInterleaved>
struct ColumnBias {
  template <int32_t kW, typename Params>
  MOEJIT_DEVICE static void add(const Params& params, const GemmTile& tile,
                                const WarpgroupPart& part, float (&sums)[kW / 2]) {
    const int32_t lane = ptx::made_here(ptx::lane_index());
    float prob[2] = {1.0f, 1.0f};  // of rows r and r + 8 of a thread
    if constexpr (kTimesProb) {
      const int32_t row = part.row + ptx::warp_index() % 4 * 16 + lane / 4;
      const auto probs = ptx::global(params.probs) + (int64_t{tile.d_row} + row);
#pragma unroll
      for (int32_t half = 0; half < 2; ++half) {
        prob[half] = row + 8 * half < tile.rows ? ptx::load(probs + 8 * half) : 0.0f;
      }
    }
    const auto bias = GroupBias<Problem, kInterleaved>::of(params.bias, tile.group);
    const int32_t column = tile.column + part.column + lane % 4 * 2;
#pragma unroll
    for (int32_t j = 0; j < kW / 8; ++j) {
#pragma unroll
      for (int32_t i = 0; i < 2; ++i) {
        const float added = bias.value(tile.section, column + 8 * j + i);
#pragma unroll
        for (int32_t half = 0; half < 2; ++half) {
          float& sum = sums[4 * j + 2 * half + i];
          sum = with_bias<kTimesProb>(sum, added, prob[half]);
        }
      }
    }
  }
};

// Adds the bias to swapped tiles: rows of D are the columns of the sums.
template <typename Problem, bool kTimesProb, bool kInterleaved>
struct SwappedColumnBias {
  template <int32_t kW, typename Params>
  MOEJIT_DEVICE static void add(const Params& params, const GemmTile& tile,
                                const WarpgroupPart& part, float (&sums)[kW / 2]) {
    const int32_t lane = ptx::made_here(ptx::lane_index());
    const auto of_group = GroupBias<Problem, kInterleaved>::of(params.bias, tile.group);
    const int32_t column = tile.column + part.column + ptx::warp_index() % 4 * 16 + lane / 4;
    const float bias[2] = {of_group.value(tile.section, column),
                           of_group.value(tile.section, column + 8)};
    const int32_t row = lane % 4 * 2;
    const auto probs = ptx::global(params.probs) + (int64_t{tile.d_row} + row);
#pragma unroll
    for (int32_t j = 0; j < kW / 8; ++j) {
#pragma unroll
      for (int32_t i = 0; i < 2; ++i) {
        const int32_t at = 8 * j + i;
        float prob = 1.0f;
        if constexpr (kTimesProb) prob = row + at < tile.rows ? ptx::load(probs + at) : 0.0f;
#pragma unroll
        for (int32_t half = 0; half < 2; ++half) {
          float& sum = sums[4 * j + 2 * half + i];
          sum = with_bias<kTimesProb>(sum, bias[half], prob);
        }
      }
    }
  }
};

// Adds the bias to swapped tiles whose rows r and r + 8 of the sums are gate and up of one column.
template <typename Problem, typename Shape, bool kInterleaved>
struct GatedSwappedColumnBias {
  template <int32_t kW, typename Params>
  MOEJIT_DEVICE static void add(const Params& params, const GemmTile& tile,
                                const WarpgroupPart& part, float (&sums)[kW / 2]) {
    const auto of_group = GroupBias<Problem, kInterleaved>::of(params.bias, tile.group);
    const int32_t column =
        tile.column + part.column / 2 + ptx::warp_index() % 4 * 8 + ptx::lane_index() / 4;
    constexpr int32_t kProductSums = kW / 2 / Shape::kProducts;
#pragma unroll
    for (int32_t product = 0; product < Shape::kProducts; ++product) {
      const float bias[2] = {of_group.value(0, column + 32 * product),
                             of_group.value(1, column + 32 * product)};
#pragma unroll
      for (int32_t i = 0; i < kProductSums; ++i) {
        float& sum = sums[product * kProductSums + i];
        sum = ptx::add(sum, bias[i / 2 % 2]);
      }
    }
  }
};

template <typename Bias, typename Epilogue>
class EpilogueBiased {
 public:
  template <typename Shape>
  static constexpr int32_t kStagingBytes = Epilogue::template kStagingBytes<Shape>;

  static constexpr bool kHasStorers = false;
  static_assert(!Epilogue::kHasStorers, "nothing here for storers");

  // `staging` is the warpgroup's own.
  MOEJIT_DEVICE explicit EpilogueBiased(ptx::SharedPtr<Bytes16> staging) : epilogue_(staging) {}

  // All threads of a math warpgroup. Overwrites the sums.
  template <int32_t kW, typename Params>
  MOEJIT_DEVICE void run(const Params& params, const GemmTile& tile, const WarpgroupPart& part,
                         float (&sums)[kW / 2]) const {
    Bias::template add<kW>(params, tile, part, sums);
    epilogue_.template run<kW>(params, tile, part, sums);
  }

  // Finishes the stores. Called before the CTA ends.
  MOEJIT_DEVICE void finish() const { epilogue_.finish(); }

 private:
  Epilogue epilogue_;
};

}  // namespace moejit::device
