// SPDX-License-Identifier: Apache-2.0
#pragma once

// The activation of gate and up in swapped tiles while they are in registers: its value times the
// row's probability, in bf16.
//
// Rows r and r + 8 of a thread's sums are gate and up of one column. Both are rounded to bf16
// first, and the chain that loads h1 has the same operations, so the stored bits are the same as of
// a grouped GEMM and that chain. stmatrix transposes the values on the way into a panel [rows][32
// columns] of the warpgroup, from where threads copy the real rows. Pad rows get zeros.

#include "moejit_device/core/math.cuh"
#include "moejit_device/gemm/copy_rows_out.cuh"
#include "moejit_device/gemm/tile.cuh"
#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/ptx/convert.cuh"
#include "moejit_device/ptx/matrix_store.cuh"
#include "moejit_device/ptx/memory.cuh"

namespace moejit::device {

template <typename Problem, typename Activation>
class SwappedEpilogueActivation {
  static constexpr int32_t kColumns = 32;              // of a warpgroup, 8 of each warp
  static constexpr int32_t kRowChunks = kColumns / 8;  // of 16 bytes

 public:
  template <typename Shape>
  static constexpr int32_t kStagingBytes = Shape::kMathWarpgroups* Shape::kRows* kColumns * 2;

  static constexpr bool kHasStorers = false;

  // `staging` is the warpgroup's own.
  MOEJIT_DEVICE explicit SwappedEpilogueActivation(ptx::SharedPtr<Bytes16> staging)
      : staging_(staging) {}

  // All threads of a math warpgroup.
  template <int32_t kW, typename Params>
  MOEJIT_DEVICE void run(const Params& params, const GemmTile& tile, const WarpgroupPart& part,
                         const float (&sums)[kW / 2]) const {
    const int32_t barrier = 1 + ptx::warp_index() / 4;
    uint32_t values[kW / 8];  // of the rows 8j + 2 * (lane % 4) and the next one
    activate<kW>(params, tile, sums, values);
    // All threads have copied the rows of the tile before.
    ptx::sync_named(barrier, ptx::kWarpgroupThreads);
    stage<kW>(values);
    ptx::sync_named(barrier, ptx::kWarpgroupThreads);  // the panel is written
    copy_activation_out<Problem, Bf16, 4>(params, tile, part, staging_);
  }

  // Before the CTA ends.
  MOEJIT_DEVICE void finish() const {}

 private:
  // Values of rows that are not real may be anything.
  template <int32_t kW, typename Params>
  MOEJIT_DEVICE static void activate(const Params& params, const GemmTile& tile,
                                     const float (&sums)[kW / 2], uint32_t (&values)[kW / 8]) {
    const int32_t row = ptx::lane_index() % 4 * 2;
    const auto probs = ptx::global(params.probs) + (int64_t{tile.d_row} + row);
#pragma unroll
    for (int32_t j = 0; j < kW / 8; ++j) {
      const int32_t left = tile.rows - row - 8 * j;
      const float low_prob = left > 0 ? ptx::load(probs + 8 * j) : 0.0f;
      const float high_prob = left > 1 ? ptx::load(probs + (8 * j + 1)) : 0.0f;
      const uint32_t gate = ptx::bf16_pair(sums[4 * j], sums[4 * j + 1]);
      const uint32_t up = ptx::bf16_pair(sums[4 * j + 2], sums[4 * j + 3]);
      const float low =
          Activation::value(ptx::float_from_bf16_low(gate), ptx::float_from_bf16_low(up));
      const float high =
          Activation::value(ptx::float_from_bf16_high(gate), ptx::float_from_bf16_high(up));
      values[j] = ptx::bf16_pair(ptx::multiply(low, low_prob), ptx::multiply(high, high_prob));
    }
  }

  // 16-byte chunk c of row r lies at chunk c ^ (r / 2 % 4) of that row, so that eight rows touch
  // all banks. A warp has one chunk of a row; one stmatrix takes 32 rows.
  template <int32_t kW>
  MOEJIT_DEVICE void stage(const uint32_t (&values)[kW / 8]) const {
    if constexpr (kW < 32) {
      stage_elements<kW>(values);
    } else {
      const int32_t lane = ptx::lane_index();
      const int32_t chunk = ptx::warp_index() % 4 ^ (lane % 8 / 2);
      const auto row = staging_ + (lane * kRowChunks + chunk);
#pragma unroll
      for (int32_t j = 0; j < kW / 8; j += 4) {
        const ptx::MatrixFragments f = {{values[j], values[j + 1], values[j + 2], values[j + 3]}};
        ptx::store_matrices_transposed(row + j * 8 * kRowChunks, f);
      }
    }
  }

  template <int32_t kW>
  MOEJIT_DEVICE void stage_elements(const uint32_t (&values)[kW / 8]) const {
    const int32_t lane = ptx::lane_index();
    const int32_t chunk = ptx::warp_index() % 4 ^ (lane % 4);  // of both rows
#pragma unroll
    for (int32_t j = 0; j < kW / 8; ++j) {
      const int32_t row = 8 * j + lane % 4 * 2;
      const auto to = ptx::as<uint16_t>(staging_ + (row * kRowChunks + chunk)) + lane / 4;
      ptx::store(to, static_cast<uint16_t>(values[j]));
      ptx::store(to + kColumns, static_cast<uint16_t>(values[j] >> 16));
    }
  }

  ptx::SharedPtr<Bytes16> staging_;
};

}  // namespace moejit::device
