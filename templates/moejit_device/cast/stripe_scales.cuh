// SPDX-License-Identifier: Apache-2.0
#pragma once

// The scales of a warp's stripe, 16 rows of 128 columns: four lanes hold the 16 columns of a group
// of rows, and a lane holds groups of columns whole.
//
//   ScalesOfLines  a scale for 16 columns of a row, or for 16 rows of a column
//   ScalesOfTiles  a scale for 16x16, the same in both directions

#include "moejit_device/cast/stripe_source.cuh"
#include "moejit_device/core/e2m1.cuh"
#include "moejit_device/ptx/bytes.cuh"

namespace moejit::device {

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

// Returns the scales of two words of magnitudes.
MOEJIT_DEVICE FourScales scales_of_words(const uint32_t (&amax)[2], float expert_scale) {
  return {{two_level_scale(magnitude_of_half<0>(amax[0]), expert_scale),
           two_level_scale(magnitude_of_half<1>(amax[0]), expert_scale),
           two_level_scale(magnitude_of_half<0>(amax[1]), expert_scale),
           two_level_scale(magnitude_of_half<1>(amax[1]), expert_scale)}};
}

// Returns the largest magnitudes of a lane's columns over all rows, two in a word.
MOEJIT_DEVICE Bytes8 amax_of_columns(const ValueStripe& stripe) {
  Bytes8 amax = {};
#pragma unroll
  for (int32_t i = 0; i < kStripeRows; ++i) {
    amax.word[0] = ptx::larger_bf16_magnitudes(amax.word[0], stripe.row[i].word[0]);
    amax.word[1] = ptx::larger_bf16_magnitudes(amax.word[1], stripe.row[i].word[1]);
  }
  return amax;
}

namespace detail {

// Halves a list of pairs of rows: the lane and its neighbor at kMask keep one half each, of both.
template <int32_t kMask, int32_t kCount>
MOEJIT_DEVICE void halve_rows(uint32_t (&amax)[8]) {
  const bool is_upper = (ptx::lane_index() & kMask) != 0;
#pragma unroll
  for (int32_t i = 0; i < kCount / 2; ++i) {
    const uint32_t kept = is_upper ? amax[i + kCount / 2] : amax[i];
    const uint32_t given = is_upper ? amax[i] : amax[i + kCount / 2];
    amax[i] = ptx::larger_bf16_magnitudes(kept, ptx::shuffle_xor(given, kMask));
  }
}

}  // namespace detail

struct ScalesOfLines {
  static constexpr bool kAreSquare = false;

  // Returns those of this lane's four columns.
  MOEJIT_DEVICE static FourScales of_columns(const ValueStripe& stripe, float expert_scale) {
    const Bytes8 amax = amax_of_columns(stripe);
    return scales_of_words(amax.word, expert_scale);
  }
  // Returns those of rows 4j to 4j + 3 of this lane's group of columns, where it is the lane j of
  // the group's four.
  MOEJIT_DEVICE static FourScales of_rows(const ValueStripe& stripe, float expert_scale) {
    uint32_t amax[kStripeRows / 2];  // of two rows each, the first in the low half
#pragma unroll
    for (int32_t i = 0; i < kStripeRows / 2; ++i) {
      const Bytes8 &even = stripe.row[2 * i], &odd = stripe.row[2 * i + 1];
      const uint32_t first = ptx::larger_bf16_magnitudes(even.word[0], even.word[1]);
      const uint32_t second = ptx::larger_bf16_magnitudes(odd.word[0], odd.word[1]);
      amax[i] = ptx::larger_bf16_magnitudes(ptx::permute_bytes<0x5410>(first, second),
                                            ptx::permute_bytes<0x7632>(first, second));
    }
    detail::halve_rows<2, 8>(amax);
    detail::halve_rows<1, 4>(amax);
    const uint32_t own[2] = {amax[0], amax[1]};
    return scales_of_words(own, expert_scale);
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
