// SPDX-License-Identifier: Apache-2.0
#pragma once

// The quantize stage of values that other recipes hold in bf16: they are rounded to it first.

#include "moejit_device/stage/quantize.cuh"

namespace moejit::device {

// Rounds once to bf16, and quantizes the rounded values as Quantize1x128 does: the scale follows
// from these.
template <uint32_t kEpsilonBits>
struct Quantize1x128Rounded {
  static constexpr int32_t kSegmentsPerScale = 1;

  MOEJIT_DEVICE static QuantizedSegment apply(const ValueSegment& values) {
    return apply(pack_bf16(values));
  }
  MOEJIT_DEVICE static QuantizedSegment apply(const Bf16Segment& values) {
    const float amax = max_of_segment(magnitude(values));
    return quantize_segment(unpack_bf16(values), e4m3_scale_from_amax<kEpsilonBits>(amax));
  }
  MOEJIT_DEVICE static QuantizedGatedGradient apply(const GatedGradient& gradient) {
    return apply(round_gated_gradient(gradient));
  }
  // Lanes 0 to 3 find the scale of gate, lanes 4 to 7 the scale of up, and then they exchange.
  MOEJIT_DEVICE static QuantizedGatedGradient apply(const Bf16GatedGradient& gradient) {
    constexpr int32_t kHalf = kSegmentLanes / 2;
    const bool is_up = segment_lane() >= kHalf;
    const float gate = magnitude(gradient.gate), up = magnitude(gradient.up);
    float amax = ptx::max_number(is_up ? up : gate, ptx::shuffle_xor(is_up ? gate : up, kHalf));
#pragma unroll
    for (int32_t mask = kHalf / 2; mask > 0; mask /= 2) {
      amax = ptx::max_number(amax, ptx::shuffle_xor(amax, mask));
    }
    const BlockScale own = e4m3_scale_from_amax<kEpsilonBits>(amax);
    const float other = ptx::shuffle_xor(own.scale, kHalf);
    return {.gate = quantize_values(unpack_bf16(gradient.gate), is_up ? other : own.scale),
            .up = quantize_values(unpack_bf16(gradient.up), is_up ? own.scale : other),
            .scale_inv = own.scale_inv,
            .dprob = gradient.dprob};
  }
  MOEJIT_DEVICE static StoredUpGradient<QuantizedSegment> apply(const UpGradient& gradient) {
    return {.up = apply(times_prob(gradient)), .dprob = sum_of_segment(gradient.dprob)};
  }

 private:
  MOEJIT_DEVICE static float magnitude(const Bf16Segment& values) {
    const Bf16Segment one[1] = {values};
    return max_magnitude(one);
  }
};

}  // namespace moejit::device
