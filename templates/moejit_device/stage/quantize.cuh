// SPDX-License-Identifier: Apache-2.0
#pragma once

// Quantize stages turn values into what is stored. kSegmentsPerScale is how many neighboring
// segments of a row share a scale; the first one's index is a multiple of that number. A warp holds
// these segments together.

#include "moejit_device/core/gated_gradient.cuh"
#include "moejit_device/core/up_gradient.cuh"

namespace moejit::device {

// Rounds once to bf16.
struct QuantizeNone {
  static constexpr int32_t kSegmentsPerScale = 1;
  MOEJIT_DEVICE static Bf16Segment apply(const ValueSegment& values) { return pack_bf16(values); }
  MOEJIT_DEVICE static Bf16GatedGradient apply(const GatedGradient& gradient) {
    return round_gated_gradient(gradient);
  }
  MOEJIT_DEVICE static StoredUpGradient<Bf16Segment> apply(const UpGradient& gradient) {
    return {.up = apply(times_prob(gradient)), .dprob = sum_of_segment(gradient.dprob)};
  }
};

// Rounds once to bf16. A warp holds segments of one row, whose largest magnitude is wanted
// together.
struct RoundSetsOfSegments : QuantizeNone {
  static constexpr int32_t kSegmentsPerScale = kWarpSegments;
};

// Passes on what was loaded: bytes and scales, or bf16.
struct QuantizeKeep {
  static constexpr int32_t kSegmentsPerScale = 1;
  template <typename Segment>
  MOEJIT_DEVICE static Segment apply(const Segment& segment) {
    return segment;
  }
};

// e4m3 with one power-of-two scale per segment; core/numeric.cuh has the rule. Columns outside
// the row are zeros in `values`.
template <uint32_t kEpsilonBits>
struct Quantize1x128 {
  static constexpr int32_t kSegmentsPerScale = 1;
  MOEJIT_DEVICE static QuantizedSegment apply(const ValueSegment& values) {
    const float amax = max_of_segment(max_magnitude<kLaneColumns>(values.value, 0.0f));
    return quantize_segment(values, e4m3_scale_from_amax<kEpsilonBits>(amax));
  }
  MOEJIT_DEVICE static QuantizedGatedGradient apply(const GatedGradient& gradient) {
    return quantize_gated_gradient<kEpsilonBits, kSegmentsPerScale>(gradient);
  }
  MOEJIT_DEVICE static StoredUpGradient<QuantizedSegment> apply(const UpGradient& gradient) {
    return {.up = apply(times_prob(gradient)), .dprob = sum_of_segment(gradient.dprob)};
  }
};

// Quantizes two segments at a time: both get the scale of their common largest magnitude. If their
// number is odd, the last one is paired with an absent segment of zeros, and so has its own scale.
template <uint32_t kEpsilonBits>
struct Quantize1x128Pairs {
  static constexpr int32_t kSegmentsPerScale = 2;
  MOEJIT_DEVICE static QuantizedSegment apply(const ValueSegment& values) {
    const float own = max_of_segment(max_magnitude<kLaneColumns>(values.value, 0.0f));
    const float amax = ptx::max_number(own, ptx::shuffle_xor(own, kSegmentLanes));
    return quantize_segment(values, e4m3_scale_from_amax<kEpsilonBits>(amax));
  }
  MOEJIT_DEVICE static QuantizedGatedGradient apply(const GatedGradient& gradient) {
    return quantize_gated_gradient<kEpsilonBits, kSegmentsPerScale>(gradient);
  }
  MOEJIT_DEVICE static StoredUpGradient<QuantizedSegment> apply(const UpGradient& gradient) {
    return {.up = apply(times_prob(gradient)), .dprob = sum_of_segment(gradient.dprob)};
  }
};

}  // namespace moejit::device
