// SPDX-License-Identifier: Apache-2.0
#pragma once

// Accesses to slots [S, H], the places of tokens' rows, and to slot_scales [S, ceil(H / 128)] of
// e4m3 rows.

#include "moejit_device/ptx/system_memory.cuh"
#include "moejit_device/stage/position.cuh"

namespace moejit::device {

template <int32_t kColumns>
MOEJIT_DEVICE void store_slot(void* slots, float* scales, const SegmentPosition<kColumns>& slot,
                              const QuantizedSegment& segment) {
  store_bytes(ptx::global(static_cast<E4m3*>(slots)), slot, segment.bytes);
  if (slot.exists() && segment_lane() == 0) {
    ptx::store(ptx::global(scales) + slot.scale_offset(), segment.scale_inv);
  }
}
template <int32_t kColumns>
MOEJIT_DEVICE void store_slot(void* slots, float*, const SegmentPosition<kColumns>& slot,
                              const Bf16Segment& segment) {
  store_runs(ptx::global(static_cast<Bf16*>(slots)), slot, segment);
}

// Does what fetch_runs() does, of memory that peers have written while this kernel ran.
template <int32_t kColumns>
MOEJIT_DEVICE Bf16Segment fetch_arrived_runs(ptx::GlobalPtr<const Bf16> matrix,
                                             const SegmentPosition<kColumns>& at, int64_t row,
                                             bool reads) {
  const auto first = ptx::as<const Bytes16>(matrix + at.offset_in_row(row, run_column(0)));
  Bf16Segment segment = {};
#pragma unroll
  for (int32_t run = 0; run < 2; ++run) {
    if (reads && at.is_inside(run_column(run))) {
      segment.run[run] = ptx::load_peer_data(first + run * kSegmentLanes);
    }
  }
  return segment;
}

// Fetch what peers have written into a slot while this kernel ran; zeros if `reads` is false.
template <int32_t kColumns>
MOEJIT_DEVICE void fetch_slot(const void* slots, const float* scales,
                              const SegmentPosition<kColumns>& slot, bool reads,
                              QuantizedSegment& segment) {
  segment = {};
  if (!reads) return;
  segment.scale_inv = ptx::load_peer_data(ptx::global(scales) + slot.scale_offset());
  const int32_t column = byte_column();
  if (!slot.is_inside(column)) return;
  const auto bytes = ptx::global(static_cast<const E4m3*>(slots)) + slot.offset(column);
  segment.bytes = ptx::load_peer_data(ptx::as<const Bytes16>(bytes));
}
template <int32_t kColumns>
MOEJIT_DEVICE void fetch_slot(const void* slots, const float*,
                              const SegmentPosition<kColumns>& slot, bool reads,
                              Bf16Segment& segment) {
  segment = fetch_arrived_runs(ptx::global(static_cast<const Bf16*>(slots)), slot, slot.row, reads);
}

}  // namespace moejit::device
