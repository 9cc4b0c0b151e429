// SPDX-License-Identifier: Apache-2.0
#pragma once

// The factors of a tile's rows from scales of 1x128 blocks of A's rows and of 128x128 blocks of B.
//
// A warp that supplies factors has few registers, and each load takes hundreds of cycles. So each
// lane has the scales of two rows of A for the next two steps. Whenever it takes one step's scales,
// it fetches the scales of the step two later. The scales of B are in lanes, for eight steps at
// once. Addresses are whole pointers: to form them from offsets in each step costs the GEMM 4 % of
// its time.

#include "moejit_device/gemm/scale_factors.cuh"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

// The factors of the tile's rows r and r + 32.
struct RowFactors {
  FactorPair row;
  FactorPair row_32;
};

// The scales of one step: of the tile's rows r and r + 32, and of its two blocks of B.
struct StepScales {
  float row;
  float row_32;
  float first;
  float second;
};

// kTileSections as in the tile's shape: a second block of B is the next one of the same section, or
// the same one of the next section.
template <typename Problem, int32_t kTileSections>
class RowBlockScaleReader {
  static constexpr int32_t kSectionRows = ceil_div(Problem::kSectionN, 128);
  static constexpr int32_t kScaleRows = Problem::kSections * kSectionRows;  // of a group's B
  static constexpr int32_t kToSecond = kTileSections == 2 ? kSectionRows : 1;
  static constexpr int32_t kSteps = Problem::kSteps;
  static constexpr int32_t kBatchSteps = 2;
  static constexpr int32_t kStepsOfB = 8;

 public:
  // Starts the fetch of the first steps. Scales are zeros for rows that are not real, and for a
  // second block that does not exist. All lanes of a warp call; `row` is the first lane's row.
  template <typename Params>
  MOEJIT_DEVICE RowBlockScaleReader(const Params& params, const GemmTile& tile, int32_t row) {
    const int32_t lane = ptx::lane_index();
    a_at_ =
        ptx::global(params.a_scale_inv) + static_cast<int64_t>(tile.a_row + row + lane) * kSteps;
    rows_left_ = tile.rows - row - lane;
#pragma unroll
    for (int32_t i = 0; i < kBatchSteps; ++i) fetch_a(i, i);

    // Lane 8j + i has step i of block j.
    const int32_t block = tile.column / 128;
    const int32_t b_row = tile.group * kScaleRows + tile.section * kSectionRows + block;
    const bool is_second = lane >= kStepsOfB;
    const bool has_second = kTileSections == 2 || block + 1 < kSectionRows;
    const bool exists = lane < kStepsOfB || (lane < 2 * kStepsOfB && has_second);
    b_step_ = exists ? lane % kStepsOfB : kSteps;
    b_at_ = ptx::global(params.b_scale_inv) +
            (static_cast<int64_t>(b_row + (is_second ? kToSecond : 0)) * kSteps + b_step_);
    b_ = fetch_b();
    next_b_ = fetch_b();
  }

  // Calls write(factors) for each step of the tile, one after the other. All lanes.
  template <typename Write>
  MOEJIT_DEVICE void each_step(int32_t k_steps, const Write& write) {
    const auto make = [](const StepScales& of) -> RowFactors {
      return {{ptx::multiply(of.row, of.first), ptx::multiply(of.row, of.second)},
              {ptx::multiply(of.row_32, of.first), ptx::multiply(of.row_32, of.second)}};
    };
    batches(k_steps, make, write);
  }

  // Calls write(scales) in the same way.
  template <typename Write>
  MOEJIT_DEVICE void each_scales(int32_t k_steps, const Write& write) {
    batches(
        k_steps, [](const StepScales& of) { return of; }, write);
  }

 private:
  template <typename Make, typename Write>
  MOEJIT_DEVICE void batches(int32_t k_steps, const Make& make, const Write& write) {
#pragma unroll 1
    for (int32_t step = 0; step < k_steps; step += kBatchSteps) batch(step, make, write);
  }

  // write(make(scales)) of some steps. The next ones' scales are fetched in between.
  template <typename Make, typename Write>
  MOEJIT_DEVICE void batch(int32_t step, const Make& make, const Write& write) {
    if (step > 0 && step % kStepsOfB == 0) {
      b_ = next_b_;
      next_b_ = fetch_b();
    }
#pragma unroll
    for (int32_t i = 0; i < kBatchSteps; ++i) {
      if (kSteps % kBatchSteps != 0 && step + i >= kSteps) break;
      const float first = ptx::shuffle(b_, step % kStepsOfB + i);
      const float second = ptx::shuffle(b_, step % kStepsOfB + i + kStepsOfB);
      const auto made = make(StepScales{a_[0][i], a_[1][i], first, second});
      fetch_a(i, step + kBatchSteps + i);
      write(made);
    }
  }

  MOEJIT_DEVICE void fetch_a(int32_t i, int32_t step) {
    const bool exists = step < kSteps;
    a_[0][i] = exists && rows_left_ > 0 ? ptx::load(a_at_ + step) : 0.0f;
    a_[1][i] = exists && rows_left_ > 32 ? ptx::load(a_at_ + (32 * kSteps + step)) : 0.0f;
  }

  // Fetches the next eight steps.
  MOEJIT_DEVICE float fetch_b() {
    const float scale = b_step_ < kSteps ? ptx::load(b_at_) : 0.0f;
    b_at_ = b_at_ + kStepsOfB;
    b_step_ += kStepsOfB;
    return scale;
  }

  ptx::GlobalPtr<const float> a_at_;  // of this lane's first row
  ptx::GlobalPtr<const float> b_at_;  // what this lane fetches next
  int32_t rows_left_;                 // of the tile, from this lane's first row on
  int32_t b_step_;                    // of b_at_; beyond the last one where there is nothing
  float a_[2][kBatchSteps];
  float b_;
  float next_b_;
};

}  // namespace moejit::device
