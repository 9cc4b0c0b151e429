// SPDX-License-Identifier: Apache-2.0
#pragma once

// The destination rows of a token in descending order, the order in which they are summed. The
// eight lanes of a segment work together: each call gives all of them the same row. Rows of -1
// (not routed) come last. Rows of a token differ, as each (token, k) has its own.

#include "moejit_device/core/segment.cuh"

namespace moejit::device {

// Up to 32 rows: sorted once in registers. Element i lives in lane i % 8, register i / 8.
template <int32_t kTopK>
class SortedRows {
 public:
  MOEJIT_DEVICE SortedRows(ptx::GlobalPtr<const int32_t> rows, bool exists)
      : SortedRows([&](int32_t i) { return exists ? ptx::load(rows + i) : -1; }) {}
  // Takes row_of(i) for row i.
  template <typename RowOf>
  MOEJIT_DEVICE explicit SortedRows(RowOf row_of) {
#pragma unroll
    for (int32_t r = 0; r < kRegisters; ++r) {
      const int32_t i = r * kSegmentLanes + segment_lane();
      row_[r] = i < kTopK ? row_of(i) : -1;
    }
    sort();
  }

  // Returns the next row. Call it at most kTopK times, in a loop that is unrolled.
  MOEJIT_DEVICE int32_t next() {
    const int32_t i = next_++;
    return shuffle_in_segment(row_[i / kSegmentLanes], i % kSegmentLanes);
  }

 private:
  static constexpr int32_t kRegisters = kTopK <= 8 ? 1 : kTopK <= 16 ? 2 : 4;
  static constexpr int32_t kElements = kRegisters * kSegmentLanes;

  // A bitonic network: runs of `length` become sorted, falling and rising in turn, until one
  // falling run is left.
  MOEJIT_DEVICE void sort() {
#pragma unroll
    for (int32_t length = 2; length <= kElements; length *= 2) {
#pragma unroll
      for (int32_t distance = length / 2; distance > 0; distance /= 2) {
        if (distance < kSegmentLanes) {
          compare_lanes(length, distance);
        } else {
          compare_registers(length, distance / kSegmentLanes);
        }
      }
    }
  }

  MOEJIT_DEVICE void compare_lanes(int32_t length, int32_t distance) {
#pragma unroll
    for (int32_t r = 0; r < kRegisters; ++r) {
      const int32_t i = r * kSegmentLanes + segment_lane();
      const int32_t other = ptx::shuffle_xor(row_[r], distance);
      const bool falls = (i & length) == 0;
      const bool is_first = (i & distance) == 0;
      row_[r] = falls == is_first ? larger(row_[r], other) : smaller(row_[r], other);
    }
  }

  MOEJIT_DEVICE void compare_registers(int32_t length, int32_t distance) {
#pragma unroll
    for (int32_t r = 0; r < kRegisters; ++r) {
      if ((r & distance) != 0) continue;
      const bool falls = ((r * kSegmentLanes) & length) == 0;
      const int32_t first = row_[r];
      const int32_t second = row_[r | distance];
      row_[r] = falls ? larger(first, second) : smaller(first, second);
      row_[r | distance] = falls ? smaller(first, second) : larger(first, second);
    }
  }

  int32_t row_[kRegisters];
  int32_t next_ = 0;
};

// Any number of rows: each step scans the list (in L1 by then) for the largest row below the last
// one. Quadratic in K, but without memory of its own.
template <int32_t kTopK>
class ScannedRows {
 public:
  MOEJIT_DEVICE ScannedRows(ptx::GlobalPtr<const int32_t> rows, bool exists)
      : rows_(rows), last_(exists ? kAboveAll : -1) {}

  MOEJIT_DEVICE int32_t next() {
    int32_t best = -1;
    if (last_ >= 0) {
      for (int32_t i = segment_lane(); i < kTopK; i += kSegmentLanes) {
        const int32_t row = ptx::load(rows_ + i);
        if (row < last_) best = larger(best, row);
      }
    }
#pragma unroll
    for (int32_t mask = kSegmentLanes / 2; mask > 0; mask /= 2) {
      best = larger(best, ptx::shuffle_xor(best, mask));
    }
    last_ = best;
    return best;
  }

 private:
  static constexpr int32_t kAboveAll = 0x7fffffff;

  ptx::GlobalPtr<const int32_t> rows_;
  int32_t last_;
};

namespace detail {
template <int32_t kTopK, bool kFitsRegisters>
struct DescendingRowsOf {
  using Type = SortedRows<kTopK>;
};
template <int32_t kTopK>
struct DescendingRowsOf<kTopK, false> {
  using Type = ScannedRows<kTopK>;
};
}  // namespace detail

template <int32_t kTopK>
using DescendingRows = typename detail::DescendingRowsOf<kTopK, (kTopK <= 32)>::Type;

}  // namespace moejit::device
