// SPDX-License-Identifier: Apache-2.0
#pragma once

// The activation of gate and up in swapped tiles while they are in registers: its value times the
// row's probability, to e4m3 with a scale for the 128 columns of each row.
//
// Rows r and r + 8 of a thread's sums are gate and up of one column. Both are rounded to bf16
// first, and the chain that loads h1 has the same operations, so the stored bits are the same as of
// a grouped GEMM and that chain. A warp has 16 of the 128 columns, so largest magnitudes meet in
// shared memory, where both warpgroups read them. Then each stages its 64 columns of codes in a
// panel, from where threads copy the real rows. Pad rows get zeros and scale 0.

#include "moejit_device/core/math.cuh"
#include "moejit_device/core/numeric.cuh"
#include "moejit_device/gemm/copy_rows_out.cuh"
#include "moejit_device/gemm/tile.cuh"
#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/ptx/convert.cuh"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

// With kRounds the values are rounded to bf16 before they are quantized.
template <typename Problem, typename Shape, typename Activation, uint32_t kEpsilonBits,
          bool kRounds = false>
class SwappedEpilogueActivationQuantize {
  static_assert(Shape::kProducts == 2 && Shape::kMathWarpgroups == 2, "128 columns of values");
  static constexpr int32_t kColumns = 64;               // of a warpgroup, 16 of each warp
  static constexpr int32_t kRowChunks = kColumns / 16;  // of 16 bytes
  static constexpr int32_t kBlocks = ceil_div(Problem::kSectionN, 128);
  static constexpr int32_t kRows = Shape::kRows;
  // A warpgroup's codes, the magnitudes of its warps, and scales.
  static constexpr int32_t kPanelBytes = kRows * kColumns;
  static constexpr int32_t kOwnBytes = kPanelBytes + kRows * 4 * (4 + 1);
  static constexpr int32_t kBothBarrier = 3;  // of both warpgroups
  static_assert(Problem::kSectionN % 16 == 0, "rows of Q are stored 16 bytes at a time");

 public:
  template <typename>
  static constexpr int32_t kStagingBytes = 2 * kOwnBytes;

  static constexpr bool kHasStorers = false;

  // `staging` is the warpgroup's own.
  MOEJIT_DEVICE explicit SwappedEpilogueActivationQuantize(ptx::SharedPtr<Bytes16> staging)
      : staging_(staging) {}

  // All threads of a math warpgroup. Both warpgroups have the same tiles.
  template <int32_t kW, typename Params>
  MOEJIT_DEVICE void run(const Params& params, const GemmTile& tile, const WarpgroupPart& part,
                         const float (&sums)[kW / 2]) const {
    const int32_t barrier = 1 + ptx::warp_index() / 4;
    // The columns of the first and of the second product, for rows 8j + 2 * (lane % 4) + i.
    float values[kW / 8][2];
    activate<kW>(params, tile, part, sums, values);
    // All threads are done with the tile before.
    ptx::sync_named(kBothBarrier, 2 * ptx::kWarpgroupThreads);
    store_magnitudes<kW>(values);
    ptx::sync_named(kBothBarrier, 2 * ptx::kWarpgroupThreads);  // all magnitudes are there
    make_scales<kW / 2>(params, tile, part);
    ptx::sync_named(barrier, ptx::kWarpgroupThreads);  // so are scales
    stage<kW>(values);
    ptx::sync_named(barrier, ptx::kWarpgroupThreads);  // the panel is written
    copy_activation_out<Problem, uint8_t, 2>(params, tile, part, staging_);
  }

  // Before the CTA ends.
  MOEJIT_DEVICE void finish() const {}

 private:
  // values[2j + i] of row 8j + 2 * (lane % 4) + i. Zeros in columns past the section; values of
  // rows that are not real may be anything.
  template <int32_t kW, typename Params>
  MOEJIT_DEVICE static void activate(const Params& params, const GemmTile& tile,
                                     const WarpgroupPart& part, const float (&sums)[kW / 2],
                                     float (&values)[kW / 8][2]) {
    const int32_t column =
        tile.column + part.column / 2 + ptx::warp_index() % 4 * 8 + ptx::lane_index() / 4;
    const int32_t row = ptx::lane_index() % 4 * 2;
    const auto probs = ptx::global(params.probs) + (int64_t{tile.d_row} + row);
#pragma unroll
    for (int32_t j = 0; j < kW / 16; ++j) {
      const int32_t left = tile.rows - row - 8 * j;
      const float prob[2] = {left > 0 ? ptx::load(probs + 8 * j) : 0.0f,
                             left > 1 ? ptx::load(probs + (8 * j + 1)) : 0.0f};
#pragma unroll
      for (int32_t product = 0; product < 2; ++product) {
        const float* x = sums + (product * (kW / 4) + 4 * j);
        const uint32_t gate = ptx::bf16_pair(x[0], x[1]);
        const uint32_t up = ptx::bf16_pair(x[2], x[3]);
        const float low =
            Activation::value(ptx::float_from_bf16_low(gate), ptx::float_from_bf16_low(up));
        const float high =
            Activation::value(ptx::float_from_bf16_high(gate), ptx::float_from_bf16_high(up));
        const bool exists =
            Problem::kSectionN % 128 == 0 || column + 32 * product < Problem::kSectionN;
        values[2 * j][product] = exists ? rounded(ptx::multiply(low, prob[0])) : 0.0f;
        values[2 * j + 1][product] = exists ? rounded(ptx::multiply(high, prob[1])) : 0.0f;
      }
    }
  }

  MOEJIT_DEVICE static float rounded(float value) {
    return kRounds ? ptx::float_from_bf16_low(ptx::bf16_pair(value, 0.0f)) : value;
  }

  // Lane l / 4 of a warp has 2 of its 16 columns. Magnitudes of rows lie warp after warp.
  template <int32_t kW>
  MOEJIT_DEVICE void store_magnitudes(const float (&values)[kW / 8][2]) const {
    const int32_t lane = ptx::lane_index();
    const auto to = magnitudes(staging_) + (ptx::warp_index() % 4 * kRows + lane % 4 * 2);
#pragma unroll
    for (int32_t i = 0; i < kW / 8; ++i) {
      float amax = max_magnitude<2>(values[i], 0.0f);
#pragma unroll
      for (int32_t distance = 4; distance < 32; distance *= 2)
        amax = ptx::max_number(amax, ptx::shuffle_xor(amax, distance));
      if (lane < 4) ptx::store(to + (i / 2 * 8 + i % 2), amax);
    }
  }

  // Makes the scales of kWidth rows for this warpgroup, 0 for those that are not real. The first
  // one stores their inverses, and 0 for pad rows.
  template <int32_t kWidth, typename Params>
  MOEJIT_DEVICE void make_scales(const Params& params, const GemmTile& tile,
                                 const WarpgroupPart& part) const {
    const bool is_first = part.column == 0;
    const auto other = magnitudes(staging_ + (is_first ? kOwnBytes / 16 : -kOwnBytes / 16));
    const int32_t end = larger(tile.padded_rows, kWidth);
    for (int32_t row = ptx::thread_index() % ptx::kWarpgroupThreads; row < end;
         row += ptx::kWarpgroupThreads) {
      BlockScale scale = {.scale = 0.0f, .scale_inv = 0.0f};
      if (row < tile.rows) {
        float amax = 0.0f;
#pragma unroll
        for (int32_t warp = 0; warp < 4; ++warp) {
          amax = ptx::max_number(amax, ptx::load(magnitudes(staging_) + (warp * kRows + row)));
          amax = ptx::max_number(amax, ptx::load(other + (warp * kRows + row)));
        }
        scale = e4m3_scale_from_amax<kEpsilonBits>(amax);
      }
      if (row < kWidth) ptx::store(scales() + row, scale.scale);
      if (is_first && row < tile.padded_rows) {
        const int64_t at = (static_cast<int64_t>(tile.d_row) + row) * kBlocks + tile.column / 128;
        ptx::store(ptx::global(params.q_scale_inv) + at, scale.scale_inv);
      }
    }
  }

  // 16-byte chunk c of row r lies at chunk c ^ (r / 2 % 4) of that row.
  template <int32_t kW>
  MOEJIT_DEVICE void stage(const float (&values)[kW / 8][2]) const {
    const int32_t lane = ptx::lane_index();
    const int32_t chunk = ptx::warp_index() % 4 / 2;  // of the first product; two further on
    const int32_t byte = ptx::warp_index() % 2 * 8 + lane / 4;
    const int32_t first = lane % 4 * 2;
#pragma unroll
    for (int32_t i = 0; i < kW / 8; ++i) {
      const int32_t row = i / 2 * 8 + first + i % 2;
      const uint16_t codes = quantize_pair(values[i], ptx::load(scales() + row));
      const auto to = ptx::as<uint8_t>(staging_ + row * kRowChunks) + byte;
      ptx::store(to + 16 * (chunk ^ (lane % 4)), static_cast<uint8_t>(codes));
      ptx::store(to + 16 * ((chunk + 2) ^ (lane % 4)), static_cast<uint8_t>(codes >> 8));
    }
  }

  // [4 warps][kRows] of the warpgroup whose staging it is.
  MOEJIT_DEVICE static ptx::SharedPtr<float> magnitudes(ptx::SharedPtr<Bytes16> staging) {
    return ptx::as<float>(staging + kPanelBytes / 16);
  }
  MOEJIT_DEVICE ptx::SharedPtr<float> scales() const { return magnitudes(staging_) + 4 * kRows; }

  ptx::SharedPtr<Bytes16> staging_;
};

}  // namespace moejit::device
