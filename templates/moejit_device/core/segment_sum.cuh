// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/core/segment.cuh"

namespace moejit::device {

// Adds a lane's values to its sum of a segment, in fp32. If `are_there` is false they may be
// anything, such as the values of another row that was loaded in their place.
MOEJIT_DEVICE void add_values(ValueSegment& sum, const ValueSegment& values, bool are_there) {
#pragma unroll
  for (int32_t v = 0; v < kLaneColumns; ++v) {
    if (are_there) sum.value[v] = ptx::add(sum.value[v], values.value[v]);
  }
}

}  // namespace moejit::device
