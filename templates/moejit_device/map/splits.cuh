// SPDX-License-Identifier: Apache-2.0
#pragma once

// How permuted rows are split among the groups (experts): group e owns the rows
// [offs[e], offs[e + 1]), of which the first counts[e] are real and the others pad rows. A group
// may be empty; rows from offs[E] on belong to none.

#include "moejit_device/core/integer.cuh"
#include "moejit_device/ptx/memory.cuh"

namespace moejit::device {

// A read-only view, of global memory or through another Pointer.
template <int32_t kGroups, typename Pointer = ptx::GlobalPtr<const int32_t>>
struct Splits {
  static_assert(kGroups > 0, "there is at least one group");

  Pointer counts;  // [E]
  Pointer offs;    // [E + 1]

  MOEJIT_DEVICE int32_t begin(int32_t group) const { return ptx::load(offs + group); }
  MOEJIT_DEVICE int32_t end(int32_t group) const { return ptx::load(offs + (group + 1)); }
  MOEJIT_DEVICE int32_t count(int32_t group) const { return ptx::load(counts + group); }
  MOEJIT_DEVICE int32_t rows() const { return ptx::load(offs + kGroups); }

  // Returns the group that owns `row`, for 0 <= row < rows(). Bisection: a few dependent loads.
  MOEJIT_DEVICE int32_t find(int64_t row) const {
    int32_t low = 0;  // begin(low) <= row < begin(high)
    int32_t high = kGroups;
    while (high - low > 1) {
      const int32_t middle = (low + high) / 2;
      const bool is_below = ptx::load(offs + middle) <= row;
      low = is_below ? middle : low;
      high = is_below ? high : middle;
    }
    return low;
  }

  MOEJIT_DEVICE bool is_pad(int64_t row) const {
    const int32_t group = find(row);
    return row >= begin(group) + count(group);
  }
};

// Tells pad rows from real ones for rows that come in ascending order: a bisection for the first,
// then a walk that loads only where a group ends.
template <int32_t kGroups>
struct GroupWalk {
  Splits<kGroups> splits;
  int32_t group = -1;
  int32_t pad_begin = 0;
  int32_t end = 0;

  // 0 <= row < rows(), not below the row of the last call.
  MOEJIT_DEVICE bool is_pad(int64_t row) {
    if (row >= end) advance_to(row);
    return row >= pad_begin;
  }

 private:
  MOEJIT_DEVICE void advance_to(int64_t row) {
    if (group < 0) {
      group = splits.find(row);
      end = splits.end(group);
    }
    while (row >= end) end = splits.end(++group);
    pad_begin = splits.begin(group) + splits.count(group);
  }
};

}  // namespace moejit::device
