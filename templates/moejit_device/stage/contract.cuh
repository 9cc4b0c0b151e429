// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the stages of a row chain promise each other. A stage is a struct template with static
// members; templates/README.md tells how to add one.
//
//   Load      fetch() starts the loads of a segment, unpack() turns what arrived into values.
//             Between the two the chain starts the loads of other segments.
//   Transform apply() maps values to values.
//   Quantize  apply() maps values to what is stored, with its scale.
//   Store     fetch() starts the loads that say where to, store() writes. Rows is the set of rows
//             that the chain walks over; finish() writes rows that have no input.
//
// Lanes of a warp arrive together: all of them call every function, also for segments that do
// not exist, and functions may exchange between lanes.

#include "moejit_device/core/segment.cuh"
#include "moejit_device/params/row_chain_params.h"

namespace moejit::device {

enum class RowKind {
  kAbsent,  // past the end: neither read nor written
  kPad,     // fills a group up to its alignment: not read, written as zeros
  kReal,
};

// Where a segment lies in a matrix of kColumns columns.
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
  // Offset of that element in a row-major matrix, and of the segment's compact scale.
  MOEJIT_DEVICE int64_t offset(int32_t column) const { return offset_in_row(row, column); }
  MOEJIT_DEVICE int64_t offset_in_row(int64_t other_row, int32_t column) const {
    return other_row * kColumns + (index * kSegmentColumns + column);
  }
  MOEJIT_DEVICE int64_t scale_offset() const { return scale_offset_in_row(row); }
  MOEJIT_DEVICE int64_t scale_offset_in_row(int64_t other_row) const {
    return other_row * kPerRow + index;
  }
};

// A stage's fetch() result where there is nothing to fetch.
struct Nothing {};

namespace detail {
template <typename T>
T made();
}  // namespace detail

template <typename Stage>
concept LoadStage = requires(const RowChainParams& params) {
  Stage::kColumns;
  Stage::kSegmentsInFlight;
  Stage::kThreadsPerSm;
  typename Stage::Fetched;
  Stage::unpack(Stage::fetch(params, detail::made<SegmentPosition<Stage::kColumns>>()));
};

template <typename Stage, typename Load>
concept TransformStageAfter = requires(typename Load::Fetched fetched) {
  Stage::apply(Load::unpack(fetched));
};

template <typename Stage, typename Load, typename Transform>
concept QuantizeStageAfter = requires(typename Load::Fetched fetched) {
  Stage::apply(Transform::apply(Load::unpack(fetched)));
};

template <typename Stage, typename Load, typename Transform, typename Quantize>
concept StoreStageAfter = requires(const RowChainParams& params, typename Load::Fetched fetched,
                                   SegmentPosition<Stage::kColumns> at,
                                   typename Stage::Fetched where) {
  typename Stage::Rows;
  Stage::fetch(params, at);
  Stage::store(params, at, where, Quantize::apply(Transform::apply(Load::unpack(fetched))));
  Stage::finish(params);
};

}  // namespace moejit::device
