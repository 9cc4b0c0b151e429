// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where a segment lies in a row-major matrix, and the accesses to it.

#include "moejit_device/core/segment.cuh"

namespace moejit::device {

enum class RowKind {
  kAbsent,  // past the end: neither read nor written
  kPad,     // fills a group up to its alignment: not read, written as zeros
  kReal,
};

// Which of this lane's two runs of values are of a real row, and inside it.
struct ExistingRuns {
  bool run[2];

  // Returns whether lane value `i` exists.
  MOEJIT_DEVICE bool has(int32_t i) const { return run[i / kRunColumns]; }
};

template <int32_t kColumns>
struct SegmentPosition {
  static_assert(kColumns > 0 && kColumns % kLaneColumns == 0,
                "rows have a multiple of 16 columns: a lane's share is all inside or all outside");
  static constexpr int32_t kPerRow = ceil_div(kColumns, kSegmentColumns);
  static constexpr int32_t kLastColumns = kColumns - (kPerRow - 1) * kSegmentColumns;

  int64_t row;
  int32_t index;  // of the segment in its row
  RowKind kind;

  MOEJIT_DEVICE bool is_real() const { return kind == RowKind::kReal; }
  MOEJIT_DEVICE bool exists() const { return kind != RowKind::kAbsent; }
  // Column `column` of the segment lies inside the row.
  MOEJIT_DEVICE bool is_inside(int32_t column) const {
    return kLastColumns == kSegmentColumns || index + 1 < kPerRow || column < kLastColumns;
  }
  MOEJIT_DEVICE ExistingRuns existing_runs() const {
    return {{is_real() && is_inside(run_column(0)), is_real() && is_inside(run_column(1))}};
  }
  // Offset of that element, and of the segment's compact scale, in this row or in another one.
  MOEJIT_DEVICE int64_t offset(int32_t column) const { return offset_in_row(row, column); }
  MOEJIT_DEVICE int64_t offset_in_row(int64_t other_row, int32_t column) const {
    return other_row * kColumns + (index * kSegmentColumns + column);
  }
  MOEJIT_DEVICE int64_t scale_offset() const { return scale_offset_in_row(row); }
  MOEJIT_DEVICE int64_t scale_offset_in_row(int64_t other_row) const {
    return other_row * kPerRow + index;
  }
};

// Fetches the same segment of row `row` of a bf16 matrix [rows, C]; zeros if `reads` is false and
// in columns outside the row.
template <int32_t kColumns>
MOEJIT_DEVICE Bf16Segment fetch_runs(ptx::GlobalPtr<const Bf16> matrix,
                                     const SegmentPosition<kColumns>& at, int64_t row, bool reads) {
  const auto first = ptx::as<const Bytes16>(matrix + at.offset_in_row(row, run_column(0)));
  Bf16Segment segment = {};
#pragma unroll
  for (int32_t run = 0; run < 2; ++run) {
    if (reads && at.is_inside(run_column(run))) {
      segment.run[run] = ptx::load_streaming(first + run * kSegmentLanes);
    }
  }
  return segment;
}

// Stores the runs if the position exists.
template <int32_t kColumns>
MOEJIT_DEVICE void store_runs(ptx::GlobalPtr<Bf16> matrix, const SegmentPosition<kColumns>& at,
                              const Bf16Segment& segment) {
  const auto first = ptx::as<Bytes16>(matrix + at.offset(run_column(0)));
#pragma unroll
  for (int32_t run = 0; run < 2; ++run) {
    if (at.exists() && at.is_inside(run_column(run))) {
      ptx::store_streaming(first + run * kSegmentLanes, segment.run[run]);
    }
  }
}

template <int32_t kColumns>
MOEJIT_DEVICE void store_bytes(ptx::GlobalPtr<E4m3> matrix, const SegmentPosition<kColumns>& at,
                               const Bytes16& bytes) {
  const int32_t column = byte_column();
  if (at.exists() && at.is_inside(column)) {
    ptx::store_streaming(ptx::as<Bytes16>(matrix + at.offset(column)), bytes);
  }
}

}  // namespace moejit::device
