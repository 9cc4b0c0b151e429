// SPDX-License-Identifier: Apache-2.0
#pragma once

// Scales of 1x128 blocks of the rows of both operands, as a row-wise quantiser leaves them: in each
// step every element of the sums has a factor of its own, the scale of its row of A times that of
// its row of B.
//
// A scale that is loaded from global memory in the serial chain of the main loop costs the latency
// of L2 in every step, and a warpgroup needs 64 + kColumns of them. So asynchronous copies bring
// them into shared memory, a batch of four steps ahead of their use and without registers. Each
// math warpgroup has two buffers of its own: one is used while the other is filled, and neither
// warpgroup waits for the other. During a tile's last batch the next tile's first is on its way.

#include "moejit_device/gemm/mainloop.cuh"
#include "moejit_device/ptx/async_copy.cuh"
#include "moejit_device/ptx/convert.cuh"

namespace moejit::device {

// What partial sums are multiplied with, in the order of ptx::WgmmaSum.
template <int32_t kW>
struct ElementFactors {
  float value[kW / 2];
};

template <typename Problem, typename Shape>
class RowScales {
  static constexpr int32_t kBatchSteps = 4;
  static constexpr int32_t kRows = 64;  // of a warpgroup
  static constexpr int32_t kColumns = Shape::kTileColumns;
  // A step's scales, of rows and then of columns. The lanes of a warp that bring four steps of
  // eight rows fill all banks: the pitch is eight more than a multiple of 32.
  static constexpr int32_t kPitch = kRows + kColumns + 8;
  static constexpr int32_t kBuffer = kBatchSteps * kPitch;
  static constexpr int32_t kRowsAtOnce = ptx::kWarpgroupThreads / kBatchSteps;
  static_assert(kColumns % 32 == 0, "threads copy whole rounds");

 public:
  static constexpr int32_t kSharedBytes = Shape::kMathWarpgroups * 2 * kBuffer * 4;

  template <typename Params>
  MOEJIT_DEVICE RowScales(const Params& params, ptx::SharedPtr<float> buffers)
      : a_scale_(ptx::global(params.a_scale_inv)),
        b_scale_(ptx::global(params.b_scale_inv)),
        pitch_(static_cast<int32_t>(params.columns / 128)),
        present_(buffers + ptx::warp_index() / 4 * (2 * kBuffer)),
        next_(present_ + kBuffer) {}

  // Brings a tile's first batch: of the first tile, and of each that follows one without steps.
  MOEJIT_DEVICE void prime(const GemmTile& tile) {
    fetch(tile, 0);
    advance();
  }

  // Before the batches of each tile.
  MOEJIT_DEVICE void start(const GemmTile&, const WarpgroupPart&) {}

  // Starts the fetch of the next batch: where this one is the tile's last, of the tile that follows
  // in the queue.
  template <typename Queue>
  MOEJIT_DEVICE void fetch_next(bool is_last, const Queue& queue) {
    fetched_ = is_last ? 0 : fetched_ + kBatchSteps;
    fetch(is_last ? queue.following() : queue.front(), fetched_);
  }

  // The batch that was fetched becomes the present one. The barrier makes it whole, and lets the
  // next fetch overwrite the old one: all warps have their last factors of it.
  MOEJIT_DEVICE void advance() {
    ptx::wait_async_copies<0>();
    ptx::sync_named(1 + ptx::warp_index() / 4, ptx::kWarpgroupThreads);
    const auto old = present_;
    present_ = next_;
    next_ = old;
  }

  // Of step `i` of the batch.
  template <int32_t kW>
  MOEJIT_DEVICE ElementFactors<kW> factors(int32_t i) const {
    const int32_t lane = ptx::lane_index();
    const auto rows = present_ + (i * kPitch + ptx::warp_index() % 4 * 16 + lane / 4);
    const auto columns = ptx::as<Bytes8>(present_ + (i * kPitch + kRows)) + lane % 4;
    const float low = ptx::load(rows);
    const float high = ptx::load(rows + 8);
    ElementFactors<kW> factors;
#pragma unroll
    for (int32_t j = 0; j < kW / 8; ++j) {
      const Bytes8 pair = ptx::load(columns + 4 * j);
#pragma unroll
      for (int32_t column = 0; column < 2; ++column) {
        const float scale = ptx::float_from_bits(pair.word[column]);
        factors.value[4 * j + column] = ptx::multiply(low, scale);
        factors.value[4 * j + 2 + column] = ptx::multiply(high, scale);
      }
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

 private:
  // Brings the batch from `first_step` of the tile on: a thread one step of each round of rows.
  // Rows and columns beyond D, and steps beyond the group, get zeros. All is derived from the tile
  // anew: in the main loop registers are scarce.
  MOEJIT_DEVICE void fetch(const GemmTile& tile, int32_t first_step) {
    const int32_t thread = ptx::thread_index() % ptx::kWarpgroupThreads;
    const int32_t step = thread % kBatchSteps;
    const int32_t line = thread / kBatchSteps;  // first row of A, and of B
    const int32_t row = Shape::part(tile, ptx::warp_index() / 4).row + line;
    const int32_t block = tile.k_begin / 128 + first_step + step;
    const bool exists = first_step + step < tile.k_steps;
    const int32_t rows_left = exists ? tile.rows - row : 0;
    const int32_t columns_left = exists ? Problem::kN - tile.column - line : 0;
    const int32_t a_at = (tile.a_row + row) * pitch_ + block;
    const int32_t b_at = (tile.b_row + line) * pitch_ + block;
    const auto to = next_ + (step * kPitch + line);
#pragma unroll
    for (int32_t i = 0; i < kRows; i += kRowsAtOnce) {
      ptx::copy_async_4(to + i, a_scale_ + (a_at + i * pitch_), i < rows_left);
    }
#pragma unroll
    for (int32_t i = 0; i < kColumns; i += kRowsAtOnce) {
      ptx::copy_async_4(to + (kRows + i), b_scale_ + (b_at + i * pitch_), i < columns_left);
    }
    ptx::commit_async_copies();
  }

  ptx::GlobalPtr<const float> a_scale_;
  ptx::GlobalPtr<const float> b_scale_;
  int32_t pitch_;                  // scales of a row
  ptx::SharedPtr<float> present_;  // the batch that is used
  ptx::SharedPtr<float> next_;     // the batch that is on its way
  int32_t fetched_ = 0;            // steps of the tile before the batch that is on its way
};

}  // namespace moejit::device
