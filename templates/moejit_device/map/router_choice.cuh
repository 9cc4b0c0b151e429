// SPDX-License-Identifier: Apache-2.0
#pragma once

// The largest values of a row that a warp holds, and where they are. The lower index of equal
// values is larger, and NaN is larger than all numbers.

#include "moejit_device/core/integer.cuh"
#include "moejit_device/ptx/convert.cuh"
#include "moejit_device/ptx/reduce.cuh"

namespace moejit::device {

// Keys are ordered as their values. -0 has the key of +0, all NaN have one key, and no value has
// the key 0, which stands for nothing.
inline constexpr uint32_t kNoKey = 0u;
inline constexpr uint32_t kNanKey = 0xffffffffu;

MOEJIT_DEVICE uint32_t key_of(float value) {
  // The sum with 0 turns -0 to +0, and makes every NaN 0x7fffffff.
  const uint32_t bits = ptx::bits_of(ptx::add(value, 0.0f));
  const auto all_if_negative = static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31);
  return bits ^ (all_if_negative | 0x80000000u);
}

MOEJIT_DEVICE float value_of_key(uint32_t key) {
  const auto all_if_negative = static_cast<uint32_t>(static_cast<int32_t>(~key) >> 31);
  return ptx::float_from_bits(key ^ (all_if_negative | 0x80000000u));
}

// A lane's keys in lists of up to four, each in descending order, of equal keys the lower slot
// first. Whoever takes the largest moves up the rest of one list alone.
template <int32_t kCount>
struct RouterCandidates {
  static constexpr int32_t kLists = ceil_div(kCount, int32_t{4});
  static constexpr int32_t kLength = ceil_div(kCount, kLists);

  MOEJIT_DEVICE explicit RouterCandidates(const uint32_t (&keys)[kCount]) {
#pragma unroll
    for (int32_t list = 0; list < kLists; ++list) {
      uint32_t slot[kLength];
#pragma unroll
      for (int32_t i = 0; i < kLength; ++i) {
        const int32_t at = list * kLength + i;
        key[list][i] = at < kCount ? keys[at < kCount ? at : 0] : kNoKey;
        slot[i] = static_cast<uint32_t>(at);
      }
      sort(key[list], slot);
      slots[list] = 0u;
#pragma unroll
      for (int32_t i = 0; i < kLength; ++i) slots[list] |= slot[i] << (8 * i);
    }
  }

  // The largest key, and in `slot` where it is.
  MOEJIT_DEVICE uint32_t largest(uint32_t& slot) const {
    uint32_t best = key[0][0];
    slot = slots[0];
#pragma unroll
    for (int32_t list = 1; list < kLists; ++list) {
      const bool is_larger = key[list][0] > best;
      best = is_larger ? key[list][0] : best;
      slot = is_larger ? slots[list] : slot;
    }
    slot &= 0xffu;
    return best;
  }

  // Takes away the key at `slot`, which is the largest, if `takes`.
  MOEJIT_DEVICE void take(uint32_t slot, bool takes) {
#pragma unroll
    for (int32_t list = 0; list < kLists; ++list) {
      const bool is_here = takes && (kLists == 1 || (slots[list] & 0xffu) == slot);
#pragma unroll
      for (int32_t i = 0; i + 1 < kLength; ++i)
        key[list][i] = is_here ? key[list][i + 1] : key[list][i];
      key[list][kLength - 1] = is_here ? kNoKey : key[list][kLength - 1];
      slots[list] = is_here ? slots[list] >> 8 : slots[list];
    }
  }

  MOEJIT_DEVICE void two_largest(uint32_t& first, uint32_t& second) const {
    first = key[0][0];
    second = kLength > 1 ? key[0][kLength > 1 ? 1 : 0] : kNoKey;
#pragma unroll
    for (int32_t list = 1; list < kLists; ++list) {
      second = larger(smaller(first, key[list][0]), larger(second, key[list][1]));
      first = larger(first, key[list][0]);
    }
  }

  // Makes all keys `other`, in ascending order of slots, if `clears`.
  MOEJIT_DEVICE void clear(bool clears, uint32_t other) {
#pragma unroll
    for (int32_t list = 0; list < kLists; ++list) {
      uint32_t ascending = 0u;
#pragma unroll
      for (int32_t i = 0; i < kLength; ++i) {
        const int32_t at = list * kLength + i;
        key[list][i] = clears ? (at < kCount ? other : kNoKey) : key[list][i];
        ascending |= static_cast<uint32_t>(at) << (8 * i);
      }
      slots[list] = clears ? ascending : slots[list];
    }
  }

  uint32_t key[kLists][kLength];
  uint32_t slots[kLists];  // a byte for each key of a list, the first in the lowest

 private:
  // Keys that are equal stay in their order, since only neighbors change places.
  MOEJIT_DEVICE static void sort(uint32_t (&keys)[kLength], uint32_t (&slot)[kLength]) {
#pragma unroll
    for (int32_t end = 1; end < kLength; ++end) {
#pragma unroll
      for (int32_t i = end; i > 0; --i) {
        const bool swaps = keys[i] > keys[i - 1];
        const uint32_t high = larger(keys[i], keys[i - 1]), low = smaller(keys[i], keys[i - 1]);
        const uint32_t first = slot[i - 1], second = slot[i];
        keys[i - 1] = high;
        keys[i] = low;
        slot[i - 1] = swaps ? second : first;
        slot[i] = swaps ? first : second;
      }
    }
  }
};

// The lanes below this one, as bits.
MOEJIT_DEVICE uint32_t lanes_below(int32_t lane) { return (1u << lane) - 1u; }

// Whether a lane that holds something is the lowest of those that do. Every lane must call.
MOEJIT_DEVICE bool is_lowest_holder(bool holds, uint32_t lanes_below_it) {
  const uint32_t holders = ptx::ballot(holds);
  return holds && (holders & lanes_below_it) == 0u;
}

// Takes the kCount largest keys of the lanes, one after the other, and calls visit(i, slot) in the
// lane that has the one at i. Returns the largest of them.
template <int32_t kCount, typename Candidates, typename Visit>
MOEJIT_DEVICE uint32_t choose(Candidates candidates, Visit visit) {
  const auto below =
      static_cast<uint32_t>(ptx::made_here(static_cast<int32_t>(lanes_below(ptx::lane_index()))));
  uint32_t highest = kNoKey;
#pragma unroll
  for (int32_t i = 0; i < kCount; ++i) {
    uint32_t slot;
    const uint32_t own = candidates.largest(slot);
    const uint32_t largest = ptx::max_of_warp(own);
    if (i == 0) highest = largest;
    const bool takes = is_lowest_holder(own == largest, below);
    if (takes) visit(i, static_cast<int32_t>(slot));
    candidates.take(slot, takes);
  }
  return highest;
}

}  // namespace moejit::device
