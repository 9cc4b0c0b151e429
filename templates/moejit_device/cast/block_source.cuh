// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where 32 rows of a block come from, and which of them are real. A lane reads 4 columns of bf16 of
// each.
//
//   BlocksInOrder      they lie side by side
//   GatheredBlocks     each is the row of its token, which row_tokens names; rows that were
//                      permuted as zeros, whose tokens it gives as ~token, are zeros here too
//   GatheredBlocksOfAll  as GatheredBlocks, but no row is made zeros
//
// kBandTiles: see transpose/row_source.cuh.

#include "moejit_device/core/integer.cuh"
#include "moejit_device/params/block_cast_params.h"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

inline constexpr int32_t kBlockRows = 32;
inline constexpr int32_t kBlockLaneColumns = 4;
inline constexpr int32_t kBlockColumns = 32 * kBlockLaneColumns;  // that a warp holds

// 32 rows from a multiple of 32 on.
struct BlockRows {
  int32_t real;    // that have values
  int32_t stored;  // that are written; the others belong to nobody
};

// Returns the rows of the block that begins at row `first` < P. All lanes of a warp: each looks at
// one group of 32. kGroups 0: rows that all are real.
template <int32_t kGroups>
MOEJIT_DEVICE BlockRows find_block_rows(const BlockCastParams& params, int64_t first) {
  const auto left = static_cast<int32_t>(smaller(params.rows - first, int64_t{kBlockRows}));
  if constexpr (kGroups == 0) {
    return {.real = left, .stored = left};
  } else {
    const auto ends = ptx::global(params.offs) + 1;
    int32_t group = 0;  // those that end at or before the block
#pragma unroll
    for (int32_t base = 0; base < kGroups; base += 32) {
      const int32_t own = base + ptx::lane_index();
      const bool is_before = own < kGroups && ptx::load(ends + own) <= first;
      group += ptx::population_count(ptx::ballot(is_before));
    }
    if (group == kGroups) return {.real = 0, .stored = 0};
    const int64_t end = int64_t{ptx::load(ptx::global(params.offs) + group)} +
                        ptx::load(ptx::global(params.counts) + group);
    const int64_t real = larger(smaller(end - first, int64_t{left}), int64_t{0});
    return {.real = static_cast<int32_t>(real), .stored = left};
  }
}

// 32 rows of 4 columns in the registers of a lane.
struct ValueBlock32 {
  Bytes8 row[kBlockRows];
};

template <int32_t kColumns>
struct BlocksInOrder {
  static constexpr int32_t kBandTiles = ceil_div(kColumns, kBlockColumns);

  MOEJIT_DEVICE static ValueBlock32 fetch(const BlockCastParams& params, int64_t first,
                                          int32_t column, int32_t count) {
    const auto source = ptx::global(params.input) + 2 * (first * kColumns + column);
    ValueBlock32 block;
#pragma unroll
    for (int32_t i = 0; i < kBlockRows; ++i) {
      const auto run = ptx::as<const Bytes8>(source + 2 * i * kColumns);
      block.row[i] = i < count ? ptx::load_streaming(run) : Bytes8{};
    }
    return block;
  }
};

template <int32_t kColumns, bool kZeroes>
struct GatheredBlocksOf {
  static constexpr int32_t kBandTiles = 4;

  MOEJIT_DEVICE static ValueBlock32 fetch(const BlockCastParams& params, int64_t first,
                                          int32_t column, int32_t count) {
    constexpr int32_t kNone = -0x7fffffff - 1;  // there is no such row
    const int32_t lane = ptx::lane_index();
    const auto tokens = ptx::global(params.row_tokens) + first;
    // Lanes without columns lend their token all the same.
    const int32_t real = ptx::shuffle(count, 0);
    const int32_t own = lane < real ? ptx::load(tokens + lane) : kNone;
    const auto source = ptx::global(params.input) + 2 * int64_t{column};
    ValueBlock32 block;
#pragma unroll
    for (int32_t i = 0; i < kBlockRows; ++i) {
      int32_t token = ptx::shuffle(own, i);
      if (!kZeroes && token < 0 && token != kNone) token = ~token;
      const auto run = ptx::as<const Bytes8>(source + 2 * int64_t{token} * kColumns);
      block.row[i] = i < count && token >= 0 ? ptx::load(run) : Bytes8{};
    }
    return block;
  }
};

template <int32_t kColumns>
using GatheredBlocks = GatheredBlocksOf<kColumns, true>;
template <int32_t kColumns>
using GatheredBlocksOfAll = GatheredBlocksOf<kColumns, false>;

}  // namespace moejit::device
