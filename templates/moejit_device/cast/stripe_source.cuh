// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where the 16 rows of a stripe come from, to which expert they belong, and which of them are real.
// A warp holds a stripe of 128 columns, each lane 4 columns of all rows.
//
//   StripesInOrder       rows lie side by side
//   GatheredStripes      each is the row of its token, which row_tokens names; rows that were
//                        permuted as zeros, whose tokens it gives as ~token, are zeros here too
//   GatheredStripesOfAll as GatheredStripes, but no row is made zeros
//
// kBandTiles: see transpose/row_source.cuh.

#include "moejit_device/core/integer.cuh"
#include "moejit_device/params/two_level_cast_params.h"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

inline constexpr int32_t kStripeRows = 16;
inline constexpr int32_t kStripeLaneColumns = 4;
inline constexpr int32_t kStripeColumns = 32 * kStripeLaneColumns;  // that a warp holds

// 16 rows from a multiple of 16 on.
struct StripeRows {
  int32_t expert;
  int32_t real;    // that have values
  int32_t stored;  // that are written; the others belong to nobody
};

// Returns the rows of the stripe that begins at row `first` < P. All lanes of a warp: each looks at
// one group of 32. kGroups 0: rows that all are real, those of matrices of kMatrixRows, or of one.
template <int32_t kGroups, int32_t kMatrixRows>
MOEJIT_DEVICE StripeRows find_stripe_rows(const TwoLevelCastParams& params, int64_t first) {
  const auto left = static_cast<int32_t>(smaller(params.rows - first, int64_t{kStripeRows}));
  if constexpr (kGroups == 0) {
    const int64_t matrix = kMatrixRows == 0 ? 0 : first / larger(kMatrixRows, int32_t{1});
    return {.expert = static_cast<int32_t>(matrix), .real = left, .stored = left};
  } else {
    const auto ends = ptx::global(params.offs) + 1;
    int32_t group = 0;  // those that end at or before the stripe
#pragma unroll
    for (int32_t base = 0; base < kGroups; base += 32) {
      const int32_t own = base + ptx::lane_index();
      const bool is_before = own < kGroups && ptx::load(ends + own) <= first;
      group += ptx::population_count(ptx::ballot(is_before));
    }
    if (group == kGroups) return {.expert = 0, .real = 0, .stored = 0};
    const int64_t end = int64_t{ptx::load(ptx::global(params.offs) + group)} +
                        ptx::load(ptx::global(params.counts) + group);
    const int64_t real = larger(smaller(end - first, int64_t{left}), int64_t{0});
    return {.expert = group, .real = static_cast<int32_t>(real), .stored = left};
  }
}

// 16 rows of 4 columns in the registers of a lane.
struct ValueStripe {
  Bytes8 row[kStripeRows];
};

template <int32_t kColumns>
struct StripesInOrder {
  static constexpr int32_t kBandTiles = ceil_div(kColumns, kStripeColumns);

  MOEJIT_DEVICE static ValueStripe fetch(const TwoLevelCastParams& params, int64_t first,
                                         int32_t column, int32_t count) {
    const auto source = ptx::global(params.input) + 2 * (first * kColumns + column);
    ValueStripe stripe;
#pragma unroll
    for (int32_t i = 0; i < kStripeRows; ++i) {
      const auto run = ptx::as<const Bytes8>(source + 2 * i * kColumns);
      stripe.row[i] = i < count ? ptx::load_streaming(run) : Bytes8{};
    }
    return stripe;
  }
};

template <int32_t kColumns, bool kZeroes>
struct GatheredStripesOf {
  static constexpr int32_t kBandTiles = 4;

  MOEJIT_DEVICE static ValueStripe fetch(const TwoLevelCastParams& params, int64_t first,
                                         int32_t column, int32_t count) {
    constexpr int32_t kNone = -0x7fffffff - 1;  // there is no such row
    const int32_t lane = ptx::lane_index();
    const auto tokens = ptx::global(params.row_tokens) + first;
    // Lanes without columns lend their token all the same.
    const int32_t real = ptx::shuffle(count, 0);
    const int32_t own = lane < real ? ptx::load(tokens + lane) : kNone;
    const auto source = ptx::global(params.input) + 2 * int64_t{column};
    ValueStripe stripe;
#pragma unroll
    for (int32_t i = 0; i < kStripeRows; ++i) {
      int32_t token = ptx::shuffle(own, i);
      if (!kZeroes && token < 0 && token != kNone) token = ~token;
      const auto run = ptx::as<const Bytes8>(source + 2 * int64_t{token} * kColumns);
      stripe.row[i] = i < count && token >= 0 ? ptx::load(run) : Bytes8{};
    }
    return stripe;
  }
};

template <int32_t kColumns>
using GatheredStripes = GatheredStripesOf<kColumns, true>;
template <int32_t kColumns>
using GatheredStripesOfAll = GatheredStripesOf<kColumns, false>;

}  // namespace moejit::device
