// SPDX-License-Identifier: Apache-2.0
#pragma once

// The activation of gate and up while they are in registers: its value times probability to e4m3
// with a scale for the 128 columns of each row.
//
// Both are rounded to bf16 first, and the chain that loads h1 has the same operations. So the
// stored bits are the same as of a grouped GEMM and that chain. A row's 128 columns are with four
// lanes of one warp, so its largest magnitude takes two shuffles.
//
// The bytes are staged as a panel of 64 rows of 128, swizzled like any box of 128-byte rows, and
// leave by a tensor copy; at the ragged end of a group threads copy what is theirs.

#include "moejit_device/core/math.cuh"
#include "moejit_device/core/numeric.cuh"
#include "moejit_device/gemm/epilogue_store_bf16.cuh"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

template <typename Problem, typename Activation, uint32_t kEpsilonBits>
class EpilogueActivationQuantize {
  static constexpr int32_t kColumns = 128;  // of a scale block, and of a tile's section
  static constexpr int32_t kBlocks = ceil_div(Problem::kSectionN, kColumns);
  static constexpr int32_t kRowChunks = kColumns / 16;
  static constexpr int32_t kSums = kColumns / 2;  // of gate, and of up, in a thread
  static_assert(Problem::kSectionN % 16 == 0, "rows of Q are stored 16 bytes at a time");

 public:
  template <typename Shape>
  static constexpr int32_t kStagingBytes = Shape::kMathWarpgroups * 64 * kColumns;

  static constexpr bool kHasStorers = false;

  // `staging` is the warpgroup's own.
  MOEJIT_DEVICE explicit EpilogueActivationQuantize(ptx::SharedPtr<Bytes16> staging)
      : staging_(staging) {}

  // All threads of a math warpgroup. sums: of gate, then of up.
  template <int32_t kW, typename Params>
  MOEJIT_DEVICE void run(const Params& params, const GemmTile& tile, const WarpgroupPart& part,
                         const float (&sums)[kW / 2]) const {
    static_assert(kW == 2 * kColumns, "whole rows of both sections");
    // The values of rows r and r + 8 of a thread.
    float values[kSums];
    BlockScale scale[2];
    activate(params, tile, part, sums, values);
#pragma unroll
    for (int32_t half = 0; half < 2; ++half) scale[half] = scale_of(values, half);

    const int32_t barrier = 1 + ptx::warp_index() / 4;
    const bool is_leader = ptx::thread_index() % ptx::kWarpgroupThreads == 0;
    if (is_leader) ptx::wait_tensor_stores_read<0>();
    // The stores before have read the staging buffer, and so have all threads.
    ptx::sync_named(barrier, ptx::kWarpgroupThreads);
    stage(staging_, values, scale);
    store_scales(params, tile, part, scale);
    const bool is_whole = tile.padded_rows >= part.row + 64;
    if (is_whole) ptx::fence_proxy_async();
    ptx::sync_named(barrier, ptx::kWarpgroupThreads);  // the panel is written
    if (!is_whole) {
      copy_out(params, tile, part, staging_);
    } else if (is_leader) {
      ptx::store_tensor_2d(params.q_map, staging_, tile.column, tile.d_row + part.row);
      ptx::commit_tensor_stores();
    }
  }

  // Finishes the stores. Called before the CTA ends.
  MOEJIT_DEVICE void finish() const {
    if (ptx::thread_index() % ptx::kWarpgroupThreads == 0) ptx::wait_tensor_stores<0>();
  }

 private:
  // Returns this thread's first row in the tile; its second is 8 further down.
  MOEJIT_DEVICE static int32_t row_of_thread(const WarpgroupPart& part) {
    return part.row + ptx::warp_index() % 4 * 16 + ptx::lane_index() / 4;
  }

  // Zeros where there is no real row, whose sums may be anything, and in columns past the section.
  template <typename Params>
  MOEJIT_DEVICE static void activate(const Params& params, const GemmTile& tile,
                                     const WarpgroupPart& part, const float* sums,
                                     float (&values)[kSums]) {
    const int32_t row = row_of_thread(part);
    const auto probs = ptx::global(params.probs) + static_cast<int64_t>(tile.d_row + row);
#pragma unroll
    for (int32_t half = 0; half < 2; ++half) {
      const bool is_real = row + 8 * half < tile.rows;
      const float prob = is_real ? ptx::load(probs + 8 * half) : 0.0f;
#pragma unroll
      for (int32_t j = 0; j < kColumns / 8; ++j) {
        const bool exists = is_real && is_inside(tile.column + 8 * j);
        const int32_t at = 4 * j + 2 * half;
        const uint32_t gate = ptx::bf16_pair(sums[at], sums[at + 1]);
        const uint32_t up = ptx::bf16_pair(sums[kSums + at], sums[kSums + at + 1]);
        const float low = ptx::multiply(
            Activation::value(ptx::float_from_bf16_low(gate), ptx::float_from_bf16_low(up)), prob);
        const float high = ptx::multiply(
            Activation::value(ptx::float_from_bf16_high(gate), ptx::float_from_bf16_high(up)),
            prob);
        values[at] = exists ? low : 0.0f;
        values[at + 1] = exists ? high : 0.0f;
      }
    }
  }

  MOEJIT_DEVICE static bool is_inside(int32_t column) {
    return Problem::kSectionN % kColumns == 0 || column < Problem::kSectionN;
  }

  MOEJIT_DEVICE static BlockScale scale_of(const float (&values)[kSums], int32_t half) {
    float amax = 0.0f;
#pragma unroll
    for (int32_t j = 0; j < kColumns / 8; ++j) {
      amax = max_magnitude<2>(values + (4 * j + 2 * half), amax);
    }
    amax = ptx::max_number(amax, ptx::shuffle_xor(amax, 1));
    amax = ptx::max_number(amax, ptx::shuffle_xor(amax, 2));
    return e4m3_scale_from_amax<kEpsilonBits>(amax);
  }

  // 16-byte chunk c of row r lies at chunk c ^ (r % 8) of that row; r % 8 is lane / 4 here.
  MOEJIT_DEVICE static void stage(ptx::SharedPtr<Bytes16> staging, const float (&values)[kSums],
                                  const BlockScale (&scale)[2]) {
    const int32_t lane = ptx::made_here(ptx::lane_index());
    const int32_t row = ptx::warp_index() % 4 * 16 + lane / 4;
#pragma unroll
    for (int32_t j = 0; j < kColumns / 8; ++j) {
      const auto upper = ptx::as<uint16_t>(staging + (row * kRowChunks + (j / 2 ^ lane / 4))) +
                         (j % 2 * 4 + lane % 4);
      const auto lower = upper + 8 * kColumns / 2;
      ptx::store(upper, quantize_pair(values + 4 * j, scale[0].scale));
      ptx::store(lower, quantize_pair(values + (4 * j + 2), scale[1].scale));
    }
  }

  template <typename Params>
  MOEJIT_DEVICE static void store_scales(const Params& params, const GemmTile& tile,
                                         const WarpgroupPart& part, const BlockScale (&scale)[2]) {
    if (ptx::lane_index() % 4 != 0) return;
    const int32_t first = row_of_thread(part);
#pragma unroll
    for (int32_t half = 0; half < 2; ++half) {
      const int32_t row = first + 8 * half;
      if (row >= tile.padded_rows) continue;
      const int64_t at = static_cast<int64_t>(tile.d_row + row) * kBlocks + tile.column / kColumns;
      ptx::store(ptx::global(params.q_scale_inv) + at,
                 row < tile.rows ? scale[half].scale_inv : 0.0f);
    }
  }

  template <typename Params>
  MOEJIT_DEVICE static void copy_out(const Params& params, const GemmTile& tile,
                                     const WarpgroupPart& part, ptx::SharedPtr<Bytes16> staging) {
    const auto to =
        ptx::global(params.q) +
        (static_cast<int64_t>(tile.d_row + part.row) * Problem::kSectionN + tile.column);
    for (int32_t i = ptx::made_here(ptx::thread_index() % ptx::kWarpgroupThreads);
         i < (tile.padded_rows - part.row) * kRowChunks; i += ptx::kWarpgroupThreads) {
      const int32_t row = i / kRowChunks;
      const int32_t chunk = i % kRowChunks;
      if (!is_inside(tile.column + 16 * chunk)) continue;
      const Bytes16 bytes = ptx::load(staging + (row * kRowChunks + (chunk ^ row % 8)));
      ptx::store(
          ptx::as<Bytes16>(to + (static_cast<int64_t>(row) * Problem::kSectionN + 16 * chunk)),
          bytes);
    }
  }

  ptx::SharedPtr<Bytes16> staging_;
};

// Stores gate and up as well as their activation.
template <typename Problem, typename Activation, uint32_t kEpsilonBits>
class EpilogueStoreAndActivationQuantize {
  using Store = EpilogueStoreBf16<Problem, 0>;
  using Quantize = EpilogueActivationQuantize<Problem, Activation, kEpsilonBits>;

 public:
  template <typename Shape>
  static constexpr int32_t kStagingBytes = larger(Store::template kStagingBytes<Shape>,
                                                  Quantize::template kStagingBytes<Shape>);

  static constexpr bool kHasStorers = false;

  // `staging` is the warpgroup's own, for one after the other.
  MOEJIT_DEVICE explicit EpilogueStoreAndActivationQuantize(ptx::SharedPtr<Bytes16> staging)
      : store_(staging), quantize_(staging) {}

  template <int32_t kW, typename Params>
  MOEJIT_DEVICE void run(const Params& params, const GemmTile& tile, const WarpgroupPart& part,
                         const float (&sums)[kW / 2]) const {
    GemmTile up = tile;
    up.section = tile.section + 1;
    store_.template run<kW / 2>(params, tile, part, sums);
    store_.template run<kW / 2>(params, up, part, sums + kW / 4);
    quantize_.template run<kW>(params, tile, part, sums);
  }
  MOEJIT_DEVICE void finish() const { quantize_.finish(); }

 private:
  Store store_;
  Quantize quantize_;
};

}  // namespace moejit::device
