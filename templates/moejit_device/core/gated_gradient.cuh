// SPDX-License-Identifier: Apache-2.0
#pragma once

// The gradient of a gated segment, gate and up, and how it is rounded or quantized.

#include "moejit_device/core/segment.cuh"

namespace moejit::device {

// This lane's share. Multiplied with `prob`, the values are the gradients of gate and up.
struct GatedGradient {
  ValueSegment gate;
  ValueSegment up;
  float prob;   // of the row
  float dprob;  // sum over this lane's columns
};

struct QuantizedGatedGradient {
  Bytes16 gate;
  Bytes16 up;
  float scale_inv;  // gate's in lanes 0 to 3 of the segment, up's in lanes 4 to 7
  float dprob;      // of the segment, the same in all its lanes
};

struct Bf16GatedGradient {
  Bf16Segment gate;
  Bf16Segment up;
  float dprob;  // of the segment, the same in all its lanes
};

// As QuantizedGatedGradient, with codes whose scale lies elsewhere.
struct CodesGatedGradient {
  Bytes16 gate;
  Bytes16 up;
  float dprob;
};

// Multiplies with the probability, then rounds once to bf16.
MOEJIT_DEVICE Bf16GatedGradient round_gated_gradient(const GatedGradient& gradient) {
  ValueSegment gate, up;
#pragma unroll
  for (int32_t i = 0; i < kLaneColumns; ++i) {
    gate.value[i] = ptx::multiply(gradient.gate.value[i], gradient.prob);
    up.value[i] = ptx::multiply(gradient.up.value[i], gradient.prob);
  }
  return {.gate = pack_bf16(gate), .up = pack_bf16(up), .dprob = sum_of_segment(gradient.dprob)};
}

// e4m3 with one power-of-two scale each for gate and up, of kSegmentsPerScale neighboring segments
// in the warp. Columns outside the row are zeros.
//
// Values meet their probability and their scale as one factor, and give the same bits as one after
// the other: rounding is monotone, so the largest magnitude times the probability's is the largest
// of the products, and a power of two changes no rounding. What is needed is that probability times
// scale is finite: with epsilon 1e-10 a probability below 2^80. Zero times infinity is a NaN, which
// the largest magnitude leaves out as it does among the products.
//
// Lanes 0 to 3 find the scale of gate, lanes 4 to 7 the scale of up, and then they exchange: one
// reduction instead of two.
template <uint32_t kEpsilonBits, int32_t kSegmentsPerScale>
MOEJIT_DEVICE QuantizedGatedGradient quantize_gated_gradient(const GatedGradient& gradient) {
  static_assert(kSegmentsPerScale == 1 || kSegmentsPerScale == 2, "a segment or a pair");
  constexpr int32_t kHalf = kSegmentLanes / 2;
  const bool is_up = segment_lane() >= kHalf;
  const float gate = max_magnitude<kLaneColumns>(gradient.gate.value, 0.0f);
  const float up = max_magnitude<kLaneColumns>(gradient.up.value, 0.0f);
  float amax = ptx::max_number(is_up ? up : gate, ptx::shuffle_xor(is_up ? gate : up, kHalf));
#pragma unroll
  for (int32_t mask = kHalf / 2; mask > 0; mask /= 2) {
    amax = ptx::max_number(amax, ptx::shuffle_xor(amax, mask));
  }
  if constexpr (kSegmentsPerScale == 2) {
    amax = ptx::max_number(amax, ptx::shuffle_xor(amax, kSegmentLanes));
  }
  amax = ptx::max_number(ptx::multiply(amax, ptx::absolute(gradient.prob)), 0.0f);
  const BlockScale own = e4m3_scale_from_amax<kEpsilonBits>(amax);
  const float own_factor = ptx::multiply(gradient.prob, own.scale);
  const float other_factor = ptx::shuffle_xor(own_factor, kHalf);
  return {.gate = quantize_values(gradient.gate, is_up ? other_factor : own_factor),
          .up = quantize_values(gradient.up, is_up ? own_factor : other_factor),
          .scale_inv = own.scale_inv,
          .dprob = sum_of_segment(gradient.dprob)};
}

}  // namespace moejit::device
