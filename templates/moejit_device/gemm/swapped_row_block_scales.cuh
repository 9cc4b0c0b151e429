// SPDX-License-Identifier: Apache-2.0
#pragma once

// Scales of 1x128 blocks of A's rows and of 128x128 blocks of B for swapped tiles: rows of A are
// the columns of the sums, and one block of B is all of a tile.
//
// As in row_block_scales.cuh, a batch of four steps is fetched ahead into registers and handed out
// by shuffles before the tensor cores start. A thread has the columns 8j + 2q and 8j + 2q + 1 of
// the sums, where q = lane % 4, as have the seven other lanes of the same q. Each of these eight
// holds one column of each pair at one of the four steps:
//
//   lane 4g + q, register j:   column 8j + 2q + g / 4, step g % 4 of the batch

#include "moejit_device/gemm/mainloop.cuh"
#include "moejit_device/ptx/convert.cuh"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

// What partial sums are multiplied with: column 8j + 2q + i has [2j + i].
template <int32_t kW>
struct ColumnFactors {
  float value[kW / 4];
};

template <typename Problem, typename Shape>
class SwappedRowBlockScales {
  static constexpr int32_t kSectionRows = ceil_div(Problem::kSectionN, 128);
  static constexpr int32_t kScaleRows = Problem::kSections * kSectionRows;  // of a group's B
  static constexpr int32_t kSteps = Problem::kSteps;
  static constexpr int32_t kPairs = Shape::kRows / 8;

 public:
  template <typename Params>
  MOEJIT_DEVICE explicit SwappedRowBlockScales(const Params& params)
      : a_scale_(ptx::global(params.a_scale_inv)), b_scale_(ptx::global(params.b_scale_inv)) {}

  // Brings a tile's first batch: of the first tile, and of each that follows one without steps.
  MOEJIT_DEVICE void prime(const GemmTile& tile) {
    look_at(tile);
    fetch();
    advance();
  }

  // Before the batches of each tile.
  MOEJIT_DEVICE void start(const GemmTile&, const WarpgroupPart&) {}

  // Starts the fetch of the next batch: where this one is the tile's last, of the tile that follows
  // in the queue.
  template <typename Queue>
  MOEJIT_DEVICE void fetch_next(bool is_last, const Queue& queue) {
    if (is_last) {
      look_at(queue.following());
    } else {
      a_at_ += 4;
      b_at_ += 4;
      step_ += 4;
    }
    fetch();
  }

  // The batch that was fetched becomes the present one.
  MOEJIT_DEVICE void advance() {
#pragma unroll
    for (int32_t j = 0; j < kPairs; ++j) product_[j] = ptx::multiply(a_[j], b_);
  }

  // Of step `i` of the batch.
  template <int32_t kW>
  MOEJIT_DEVICE ColumnFactors<kW> factors(int32_t i) const {
    const int32_t source = ptx::lane_index() % 4 + 4 * i;
    ColumnFactors<kW> factors;
#pragma unroll
    for (int32_t j = 0; j < kW / 8; ++j) {
      factors.value[2 * j] = ptx::shuffle(product_[j], source);
      factors.value[2 * j + 1] = ptx::shuffle(product_[j], source + 16);
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

 private:
  // Where the scales of a tile's first batch are. Rows that are not the tile's have none.
  MOEJIT_DEVICE void look_at(const GemmTile& tile) {
    const int32_t lane = ptx::lane_index();
    const int32_t row = 2 * (lane % 4) + lane / 16;
    const int32_t b_row = tile.group * kScaleRows + tile.section * kSectionRows + tile.column / 128;
    step_ = lane / 4 % 4;
    rows_left_ = tile.k_steps > 0 ? tile.rows - row : 0;
    a_at_ = static_cast<uint32_t>(tile.a_row + row) * kSteps + step_;
    b_at_ = static_cast<uint32_t>(b_row) * kSteps + step_;
  }

  MOEJIT_DEVICE void fetch() {
    // The last batch may end before its fourth step.
    const int32_t rows_left = kSteps % 4 == 0 || step_ < kSteps ? rows_left_ : 0;
    const auto a = a_scale_ + static_cast<int64_t>(a_at_);
#pragma unroll
    for (int32_t j = 0; j < kPairs; ++j) {
      a_[j] = 8 * j < rows_left ? ptx::load(a + 8 * j * kSteps) : 0.0f;
    }
    b_ = rows_left > 0 ? ptx::load(b_scale_ + static_cast<int64_t>(b_at_)) : 0.0f;
  }

  ptx::GlobalPtr<const float> a_scale_;
  ptx::GlobalPtr<const float> b_scale_;
  uint32_t a_at_;  // element of this lane in the batch that is being fetched
  uint32_t b_at_;
  int32_t step_;
  int32_t rows_left_;      // of the tile from this lane's first row on
  float a_[kPairs];        // being fetched
  float b_;                // likewise; where the lane has no row it multiplies zeros
  float product_[kPairs];  // of this batch
};

}  // namespace moejit::device
