// SPDX-License-Identifier: Apache-2.0
#pragma once

// Segments whose scale belongs to more than their own elements: to their row, or to all rows of an
// expert. What such a scale is found from, and the codes that it gives.

#include "moejit_device/core/gated_gradient.cuh"
#include "moejit_device/core/up_gradient.cuh"

namespace moejit::device {

// Return the largest magnitude of a lane's share of values that were rounded to bf16; NaN counts as
// nothing.
MOEJIT_DEVICE float magnitude_of_lane(const Bf16Segment& segment) {
  const Bf16Segment one[1] = {segment};
  return max_magnitude(one);
}
MOEJIT_DEVICE float magnitude_of_lane(const Bf16GatedGradient& gradient) {
  const Bf16Segment both[2] = {gradient.gate, gradient.up};
  return max_magnitude(both);
}
MOEJIT_DEVICE float magnitude_of_lane(const StoredUpGradient<Bf16Segment>& gradient) {
  return magnitude_of_lane(gradient.up);
}

// Return the codes of such values times `scale`.
MOEJIT_DEVICE CodesSegment codes_of(const Bf16Segment& segment, float scale) {
  return {.bytes = quantize_values(unpack_bf16(segment), scale)};
}
MOEJIT_DEVICE CodesGatedGradient codes_of(const Bf16GatedGradient& gradient, float scale) {
  return {.gate = codes_of(gradient.gate, scale).bytes,
          .up = codes_of(gradient.up, scale).bytes,
          .dprob = gradient.dprob};
}
MOEJIT_DEVICE StoredUpGradient<CodesSegment> codes_of(const StoredUpGradient<Bf16Segment>& gradient,
                                                      float scale) {
  return {.up = codes_of(gradient.up, scale), .dprob = gradient.dprob};
}

}  // namespace moejit::device
