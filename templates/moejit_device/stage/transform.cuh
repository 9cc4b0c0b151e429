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

// ((gate * sigmoid(gate)) * up) * prob, each operation rounded to fp32.
struct TransformSwigluProbability {
  MOEJIT_DEVICE static ValueSegment apply(const GatedSegment& segment) {
    const ValueSegment gate = unpack_bf16(segment.gate);
    const ValueSegment up = unpack_bf16(segment.up);
    ValueSegment result;
#pragma unroll
    for (int32_t i = 0; i < kLaneColumns; ++i) {
      const float silu = ptx::multiply(gate.value[i], sigmoid(gate.value[i]));
      result.value[i] = ptx::multiply(ptx::multiply(silu, up.value[i]), segment.prob);
    }
    return result;
  }
};

}  // namespace moejit::device
