// SPDX-License-Identifier: Apache-2.0
#pragma once

// Transform stages: values in registers to values in registers.

#include "moejit_device/core/math.cuh"
#include "moejit_device/stage/load.cuh"

namespace moejit::device {

struct TransformIdentity {
  template <typename Segment>
  MOEJIT_DEVICE static Segment apply(const Segment& segment) {
    return segment;
  }
};

// SwiGLU times the row's probability.
struct TransformSwigluProbability {
  MOEJIT_DEVICE static ValueSegment apply(const GatedSegment& segment) {
    const ValueSegment gate = unpack_bf16(segment.gate);
    const ValueSegment up = unpack_bf16(segment.up);
    ValueSegment result;
#pragma unroll
    for (int32_t i = 0; i < kLaneColumns; ++i) {
      result.value[i] = swiglu(gate.value[i], up.value[i], segment.prob);
    }
    return result;
  }
};

}  // namespace moejit::device
