// SPDX-License-Identifier: Apache-2.0
#pragma once

// The groups of experts that a router chooses from. A group's experts are in kLanes neighboring
// lanes, a power of two.

#include "moejit_device/map/router_choice.cuh"

namespace moejit::device {

template <typename Formula, int32_t kLanes>
struct RouterGroups {
  static constexpr int32_t kGroups = Formula::kGroups;
  static_assert(kLanes > 0 && (kLanes & (kLanes - 1)) == 0 && kLanes * kGroups <= 32,
                "lanes exchange values in pairs");

  // Makes the keys of experts in other groups the ones of 0 or of -inf.
  template <typename Candidates>
  MOEJIT_DEVICE static void keep(Candidates& candidates) {
    const bool is_kept = is_chosen(score(candidates));
    const bool has_group = ptx::lane_index() < kLanes * kGroups;
    const float fill = Formula::kFillsZero ? 0.0f : ptx::float_from_bits(0xff800000u);
    candidates.clear(!is_kept, has_group ? key_of(fill) : kNoKey);
  }

 private:
  MOEJIT_DEVICE static int32_t first_lane() { return ptx::lane_index() & ~(kLanes - 1); }

  // The key of the group's score: the sum of its largest values, the largest first.
  template <typename Candidates>
  MOEJIT_DEVICE static uint32_t score(const Candidates& candidates) {
    if constexpr (Formula::kGroupTerms == 1) {
      uint32_t slot;
      return max_of_group(candidates.largest(slot));
    } else if constexpr (Formula::kGroupTerms == 2) {
      return score_of_two(candidates);
    } else {
      return score_of_many(candidates);
    }
  }

  MOEJIT_DEVICE static uint32_t max_of_group(uint32_t key) {
#pragma unroll
    for (int32_t distance = kLanes / 2; distance > 0; distance /= 2)
      key = larger(key, ptx::shuffle_xor(key, distance));
    return key;
  }

  template <typename Candidates>
  MOEJIT_DEVICE static uint32_t score_of_two(const Candidates& candidates) {
    uint32_t first, second;
    candidates.two_largest(first, second);
#pragma unroll
    for (int32_t distance = kLanes / 2; distance > 0; distance /= 2) {
      const uint32_t other = ptx::shuffle_xor(first, distance);
      second = larger(smaller(first, other), larger(second, ptx::shuffle_xor(second, distance)));
      first = larger(first, other);
    }
    return key_of(ptx::add(value_of_key(first), value_of_key(second)));
  }

  template <typename Candidates>
  MOEJIT_DEVICE static uint32_t score_of_many(Candidates candidates) {
    const uint32_t below = lanes_below(ptx::lane_index()) & ~lanes_below(first_lane());
    float sum = 0.0f;
#pragma unroll 1
    for (int32_t term = 0; term < Formula::kGroupTerms; ++term) {
      uint32_t slot;
      const uint32_t own = candidates.largest(slot);
      const uint32_t largest = max_of_group(own);
      candidates.take(slot, is_lowest_holder(own == largest, below));
      sum = term == 0 ? value_of_key(largest) : ptx::add(sum, value_of_key(largest));
    }
    return key_of(sum);
  }

  // Whether this lane's group is one of the groups with the highest scores.
  MOEJIT_DEVICE static bool is_chosen(uint32_t score) {
    const uint32_t below = lanes_below(first_lane());
    if (ptx::lane_index() >= kLanes * kGroups) score = kNoKey;
    bool is_kept = false;
#pragma unroll
    for (int32_t i = 0; i < Formula::kGroupsKept; ++i) {
      const bool wins = is_lowest_holder(score == ptx::max_of_warp(score), below);
      is_kept = is_kept || wins;
      if (wins) score = kNoKey;
    }
    return is_kept;
  }
};

}  // namespace moejit::device
