// SPDX-License-Identifier: Apache-2.0
#pragma once

// The walk of a CTA over the segments of a chunk: neighboring tokens that share a flag.

#include "moejit_device/stage/position.cuh"

namespace moejit::device {

// Calls visit(positions) for all segments of `count` rows from `first` on, kSegments sets of a warp
// at a time. Every lane takes part in each visit; absent segments are of kind kAbsent.
template <int32_t kColumns, int32_t kThreads, int32_t kSegments, typename Visit>
MOEJIT_DEVICE void for_each_segment(int64_t first, int32_t count, Visit visit) {
  constexpr int32_t kPerRow = SegmentPosition<kColumns>::kPerRow;
  constexpr int32_t kStep = kThreads / kSegmentLanes;
  const int32_t segments = count * kPerRow;
  for (int32_t begin = 0; begin < segments; begin += kStep * kSegments) {
    SegmentPosition<kColumns> at[kSegments];
#pragma unroll
    for (int32_t s = 0; s < kSegments; ++s) {
      const int32_t segment = begin + s * kStep + ptx::thread_index() / kSegmentLanes;
      const int32_t row = segment / kPerRow;
      at[s] = {.row = first + row,
               .index = segment - row * kPerRow,
               .kind = segment < segments ? RowKind::kReal : RowKind::kAbsent};
    }
    visit(at);
  }
}

}  // namespace moejit::device
