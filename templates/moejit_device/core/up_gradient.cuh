// SPDX-License-Identifier: Apache-2.0
#pragma once

// The gradient of a segment without a gate.

#include "moejit_device/core/segment.cuh"

namespace moejit::device {

// This lane's share. Multiplied with `prob`, the values are the gradient of up.
struct UpGradient {
  ValueSegment up;
  float prob;   // of the row
  float dprob;  // sum over this lane's columns
};

// As it is stored: rounded or quantized.
template <typename Segment>
struct StoredUpGradient {
  Segment up;
  float dprob;  // of the segment, the same in all its lanes
};

MOEJIT_DEVICE ValueSegment times_prob(const UpGradient& gradient) {
  ValueSegment values;
#pragma unroll
  for (int32_t i = 0; i < kLaneColumns; ++i) {
    values.value[i] = ptx::multiply(gradient.up.value[i], gradient.prob);
  }
  return values;
}

}  // namespace moejit::device
