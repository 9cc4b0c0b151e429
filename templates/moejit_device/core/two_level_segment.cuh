// SPDX-License-Identifier: Apache-2.0
#pragma once

// A segment whose codes are two to a byte: 64 bytes of E2M1, and 8 scales of E4M3, one for 16
// columns. Lane l has the codes of columns [16l, 16l + 16), and like the others all scales of the
// segment: each lane stores the scales for its own destination.

#include "moejit_device/core/segment.cuh"

namespace moejit::device {

// Storage of two codes of E2M1, the first one in the low half.
struct E2m1x2 {
  uint8_t bits;
};

// This lane's share of a segment.
struct TwoLevelSegment {
  Bytes8 codes;
  Bytes8 scales;  // bytes behind the row's last block as they are in memory: zeros
};

// Returns the first column, within the segment, of this lane's codes.
MOEJIT_DEVICE int32_t code_column() { return kLaneColumns * segment_lane(); }

}  // namespace moejit::device
