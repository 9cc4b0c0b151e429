// SPDX-License-Identifier: Apache-2.0
#pragma once

// Blocks of rows that a warp holds in registers, 4 columns of bf16 a lane: where their rows come
// from, which of them are real, and their largest magnitudes. Rows belong to groups, at whose first
// row blocks begin anew, or to matrices that follow each other.
//
//   RowBlocksInOrder    rows lie side by side
//   GatheredRowBlocks   each is the row of its token, which row_tokens names; rows that were
//                       permuted as zeros, whose tokens it gives as ~token, are zeros here too,
//                       unless kZeroes is false
//
// kBandTiles: see transpose/row_source.cuh. Params: records with input, row_tokens, counts, offs
// and rows.

#include "moejit_device/core/integer.cuh"
#include "moejit_device/ptx/bytes.cuh"
#include "moejit_device/ptx/convert.cuh"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

inline constexpr int32_t kRowBlockLaneColumns = 4;
inline constexpr int32_t kRowBlockColumns = 32 * kRowBlockLaneColumns;  // that a warp holds

// kRows rows.
struct BlockOfGroup {
  int64_t first;   // a multiple of kRows, unless groups start anywhere
  int32_t group;   // or matrix; 0 where nothing is stored: the rows are behind all groups
  int32_t real;    // that have values
  int32_t stored;  // that are written; the others belong to nobody
};

// Returns the rows of the block that begins at row `first`, of which `left` are below P. All lanes
// of a warp: each looks at one group of 32.
template <int32_t kGroups, typename Params>
MOEJIT_DEVICE BlockOfGroup find_block_of_groups(const Params& params, int64_t first, int32_t left) {
  const auto ends = ptx::global(params.offs) + 1;
  int32_t group = 0;  // those that end at or before the block
#pragma unroll
  for (int32_t base = 0; base < kGroups; base += 32) {
    const int32_t own = base + ptx::lane_index();
    const bool is_before = own < kGroups && ptx::load(ends + own) <= first;
    group += ptx::population_count(ptx::ballot(is_before));
  }
  if (group == kGroups) return {.first = first, .group = 0, .real = 0, .stored = 0};
  const int64_t end = int64_t{ptx::load(ptx::global(params.offs) + group)} +
                      ptx::load(ptx::global(params.counts) + group);
  const int64_t real = larger(smaller(end - first, int64_t{left}), int64_t{0});
  return {.first = first, .group = group, .real = static_cast<int32_t>(real), .stored = left};
}

// Returns the rows of a block by its number, where groups start anywhere and each has as many
// blocks as its rows and pad rows need. All lanes of a warp: each looks at one group of 32.
template <int32_t kGroups, int32_t kRows, typename Params>
MOEJIT_DEVICE BlockOfGroup find_block_anywhere(const Params& params, int32_t number) {
  const auto offs = ptx::global(params.offs);
#pragma unroll 1  // few registers
  for (int32_t base = 0; base < kGroups; base += 32) {
    const int32_t own = base + ptx::lane_index();
    const int32_t start = own < kGroups ? ptx::load(offs + own) : 0;
    const int32_t padded = own < kGroups ? ptx::load(offs + (own + 1)) - start : 0;
    int32_t end = ceil_div(padded, kRows);  // blocks up to and including the lane's group
#pragma unroll
    for (int32_t distance = 1; distance < 32; distance *= 2) {
      const int32_t below = ptx::shuffle_up(end, distance);
      if (ptx::lane_index() >= distance) end += below;
    }
    const int32_t lane = ptx::population_count(ptx::ballot(end <= number));
    if (lane < 32) {
      const int32_t before = ptx::shuffle(end - ceil_div(padded, kRows), lane);
      const int32_t row = (number - before) * kRows;  // in the group
      const int32_t group = base + lane;
      return {.first = int64_t{ptx::shuffle(start, lane)} + row,
              .group = group,
              .real = larger(smaller(ptx::load(ptx::global(params.counts) + group) - row, kRows),
                             int32_t{0}),
              .stored = smaller(ptx::shuffle(padded, lane) - row, kRows)};
    }
    number -= ptx::shuffle(end, 31);
  }
  return {.first = 0, .group = 0, .real = 0, .stored = 0};
}

// Returns the rows of the block of kRows that begins at row `first` < P. All lanes of a warp.
// kGroups 0: all rows are real, and belong to matrices of kMatrixRows, or to one matrix.
template <int32_t kGroups, int32_t kRows, int32_t kMatrixRows, typename Params>
MOEJIT_DEVICE BlockOfGroup find_block(const Params& params, int64_t first) {
  const auto left = static_cast<int32_t>(smaller(params.rows - first, int64_t{kRows}));
  if constexpr (kGroups > 0) {
    return find_block_of_groups<kGroups>(params, first, left);
  } else {
    const int64_t matrix = kMatrixRows == 0 ? 0 : first / larger(kMatrixRows, int32_t{1});
    return {.first = first, .group = static_cast<int32_t>(matrix), .real = left, .stored = left};
  }
}

// kRows rows of 4 columns in the registers of a lane.
template <int32_t kRows>
struct RowBlock {
  Bytes8 row[kRows];
};

// Returns the largest magnitudes of a lane's columns over all rows, two in a word.
template <int32_t kRows>
MOEJIT_DEVICE Bytes8 amax_of_columns(const RowBlock<kRows>& block) {
  Bytes8 amax = {};
#pragma unroll
  for (int32_t i = 0; i < kRows; ++i) {
    amax.word[0] = ptx::larger_bf16_magnitudes(amax.word[0], block.row[i].word[0]);
    amax.word[1] = ptx::larger_bf16_magnitudes(amax.word[1], block.row[i].word[1]);
  }
  return amax;
}

namespace detail {

// Halves a list of pairs of rows: the lane and its neighbor at kMask keep one half each, of both.
template <int32_t kMask, int32_t kCount, int32_t kPairs>
MOEJIT_DEVICE void halve(uint32_t (&amax)[kPairs]) {
  const bool is_upper = (ptx::lane_index() & kMask) != 0;
#pragma unroll
  for (int32_t i = 0; i < kCount / 2; ++i) {
    const uint32_t kept = is_upper ? amax[i + kCount / 2] : amax[i];
    const uint32_t given = is_upper ? amax[i] : amax[i + kCount / 2];
    amax[i] = ptx::larger_bf16_magnitudes(kept, ptx::shuffle_xor(given, kMask));
  }
}

}  // namespace detail

// Returns the largest magnitudes of rows 4j to 4j + 3 over kRows columns, two in a word, where this
// lane is the lane j of the kRows / 4 that hold these columns.
template <int32_t kRows>
MOEJIT_DEVICE Bytes8 amax_of_rows(const RowBlock<kRows>& block) {
  static_assert(kRows == 32 || kRows == 16, "lanes that hold kRows columns end with 4 rows each");
  uint32_t amax[kRows / 2];  // of two rows each, the first in the low half
#pragma unroll
  for (int32_t i = 0; i < kRows / 2; ++i) {
    const Bytes8 &even = block.row[2 * i], &odd = block.row[2 * i + 1];
    const uint32_t first = ptx::larger_bf16_magnitudes(even.word[0], even.word[1]);
    const uint32_t second = ptx::larger_bf16_magnitudes(odd.word[0], odd.word[1]);
    amax[i] = ptx::larger_bf16_magnitudes(ptx::permute_bytes<0x5410>(first, second),
                                          ptx::permute_bytes<0x7632>(first, second));
  }
  if constexpr (kRows == 32) detail::halve<4, 16>(amax);
  detail::halve<2, 8>(amax);
  detail::halve<1, 4>(amax);
  return {{amax[0], amax[1]}};
}

template <int32_t kColumns, int32_t kRows>
struct RowBlocksInOrder {
  static constexpr int32_t kBandTiles = ceil_div(kColumns, kRowBlockColumns);

  template <typename Params>
  MOEJIT_DEVICE static RowBlock<kRows> fetch(const Params& params, int64_t first, int32_t column,
                                             int32_t count) {
    const auto source = ptx::global(params.input) + 2 * (first * kColumns + column);
    RowBlock<kRows> block;
#pragma unroll
    for (int32_t i = 0; i < kRows; ++i) {
      const auto run = ptx::as<const Bytes8>(source + 2 * i * kColumns);
      block.row[i] = i < count ? ptx::load_streaming(run) : Bytes8{};
    }
    return block;
  }
};

template <int32_t kColumns, int32_t kRows, bool kZeroes>
struct GatheredRowBlocks {
  static constexpr int32_t kBandTiles = 4;

  template <typename Params>
  MOEJIT_DEVICE static RowBlock<kRows> fetch(const Params& params, int64_t first, int32_t column,
                                             int32_t count) {
    constexpr int32_t kNone = -0x7fffffff - 1;  // there is no such row
    const int32_t lane = ptx::lane_index();
    const auto tokens = ptx::global(params.row_tokens) + first;
    // Lanes without columns lend their token all the same.
    const int32_t real = ptx::shuffle(count, 0);
    const int32_t own = lane < real ? ptx::load(tokens + lane) : kNone;
    const auto source = ptx::global(params.input) + 2 * int64_t{column};
    RowBlock<kRows> block;
#pragma unroll
    for (int32_t i = 0; i < kRows; ++i) {
      int32_t token = ptx::shuffle(own, i);
      if (!kZeroes && token < 0 && token != kNone) token = ~token;
      const auto run = ptx::as<const Bytes8>(source + 2 * int64_t{token} * kColumns);
      block.row[i] = i < count && token >= 0 ? ptx::load(run) : Bytes8{};
    }
    return block;
  }
};

}  // namespace moejit::device
