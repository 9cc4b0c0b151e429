// SPDX-License-Identifier: Apache-2.0
#pragma once

// Quantize stages: values to what is stored.

#include "moejit_device/core/segment.cuh"

namespace moejit::device {

// One rounding to bf16.
struct QuantizeNone {
  MOEJIT_DEVICE static Bf16Segment apply(const ValueSegment& values) { return pack_bf16(values); }
};

// Already quantised: bytes and scales pass through.
struct QuantizeKeep {
  MOEJIT_DEVICE static QuantizedSegment apply(const QuantizedSegment& segment) { return segment; }
};

// e4m3 with one power-of-two scale per segment; core/numeric.cuh has the rule. Columns outside
// the row are zeros in `values`.
template <uint32_t kEpsilonBits>
struct Quantize1x128 {
  MOEJIT_DEVICE static QuantizedSegment apply(const ValueSegment& values) {
    const float amax = max_of_segment(max_magnitude<kLaneColumns>(values.value, 0.0f));
    return quantize_segment(values, e4m3_scale_from_amax<kEpsilonBits>(amax));
  }
};

}  // namespace moejit::device
