// SPDX-License-Identifier: Apache-2.0
#pragma once

// The stripes of casts on two levels, 16 rows of 128 columns a warp, and their scales: four lanes
// hold the 16 columns of a group of rows, and a lane holds groups of columns whole.
//
//   ScalesOfLines  a scale for 16 columns of a row, or for 16 rows of a column
//   ScalesOfTiles  a scale for 16x16, the same in both directions

#include "moejit_device/cast/row_block.cuh"
#include "moejit_device/core/e2m1.cuh"

namespace moejit::device {

inline constexpr int32_t kStripeRows = 16;

using ValueStripe = RowBlock<kStripeRows>;

template <int32_t kColumns>
using StripesInOrder = RowBlocksInOrder<kColumns, kStripeRows>;
template <int32_t kColumns>
using GatheredStripes = GatheredRowBlocks<kColumns, kStripeRows, true>;
template <int32_t kColumns>
using GatheredStripesOfAll = GatheredRowBlocks<kColumns, kStripeRows, false>;

// Returns the magnitude of half `kHalf` of a word of two bf16.
template <int32_t kHalf>
MOEJIT_DEVICE float magnitude_of_half(uint32_t pair) {
  return ptx::absolute(kHalf == 0 ? ptx::float_from_bf16_low(pair)
                                  : ptx::float_from_bf16_high(pair));
}

// The scales of four neighbors.
struct FourScales {
  TwoLevelScale of[4];
};

// Returns the scales of four magnitudes.
MOEJIT_DEVICE FourScales scales_of_words(const Bytes8& amax, float expert_scale) {
  return {{two_level_scale(magnitude_of_half<0>(amax.word[0]), expert_scale),
           two_level_scale(magnitude_of_half<1>(amax.word[0]), expert_scale),
           two_level_scale(magnitude_of_half<0>(amax.word[1]), expert_scale),
           two_level_scale(magnitude_of_half<1>(amax.word[1]), expert_scale)}};
}

struct ScalesOfLines {
  static constexpr bool kAreSquare = false;

  // Returns the scales of this lane's four columns.
  MOEJIT_DEVICE static FourScales of_columns(const ValueStripe& stripe, float expert_scale) {
    return scales_of_words(amax_of_columns(stripe), expert_scale);
  }
  // Returns the scales of rows 4j to 4j + 3 of this lane's group of columns, if it is lane j of the
  // group's four.
  MOEJIT_DEVICE static FourScales of_rows(const ValueStripe& stripe, float expert_scale) {
    return scales_of_words(amax_of_rows(stripe), expert_scale);
  }
};

struct ScalesOfTiles {
  static constexpr bool kAreSquare = true;

  MOEJIT_DEVICE static FourScales of_columns(const ValueStripe& stripe, float expert_scale) {
    const Bytes8 columns = amax_of_columns(stripe);
    const uint32_t pairs = ptx::larger_bf16_magnitudes(columns.word[0], columns.word[1]);
    float amax = ptx::max_number(magnitude_of_half<0>(pairs), magnitude_of_half<1>(pairs));
    amax = ptx::max_number(amax, ptx::shuffle_xor(amax, 1));
    amax = ptx::max_number(amax, ptx::shuffle_xor(amax, 2));
    const TwoLevelScale scale = two_level_scale(amax, expert_scale);
    return {{scale, scale, scale, scale}};
  }
  MOEJIT_DEVICE static FourScales of_rows(const ValueStripe& stripe, float expert_scale) {
    return of_columns(stripe, expert_scale);
  }
};

}  // namespace moejit::device
