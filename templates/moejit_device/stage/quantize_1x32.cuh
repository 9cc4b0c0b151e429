// SPDX-License-Identifier: Apache-2.0
#pragma once

// Quantize stages with a scale of the format E8M0 for each 32 columns of a row. A segment has four
// groups. Their bytes, the first columns' byte lowest, are the segment's scale word, which stands
// where other formats have a float. Computed values are rounded to bf16 before they are cast.
//
// Run 0 of a lane lies in group lane / 4 of its segment and run 1 in group 2 + lane / 4, so that
// four lanes hold a group.

#include "moejit_device/core/e8m0.cuh"
#include "moejit_device/ptx/bytes.cuh"
#include "moejit_device/stage/quantize.cuh"

namespace moejit::device {

// The exponents of the groups that a lane's runs lie in.
struct RunExponents {
  uint32_t run[2];
};

MOEJIT_DEVICE RunExponents find_run_exponents(const Bf16Segment& values) {
  uint32_t amax[2] = {0u, 0u};
#pragma unroll
  for (int32_t run = 0; run < 2; ++run) {
#pragma unroll
    for (int32_t w = 0; w < 4; ++w) {
      amax[run] = ptx::larger_bf16_magnitudes(amax[run], values.run[run].word[w]);
    }
  }
  // Run 0 in the low half, run 1 in the high one.
  uint32_t both = ptx::larger_bf16_magnitudes(ptx::permute_bytes<0x5410>(amax[0], amax[1]),
                                              ptx::permute_bytes<0x7632>(amax[0], amax[1]));
  both = ptx::larger_bf16_magnitudes(both, ptx::shuffle_xor(both, 1));
  both = ptx::larger_bf16_magnitudes(both, ptx::shuffle_xor(both, 2));
  const uint32_t pair = e8m0_pair(both);
  return {{pair & 0xffu, pair >> 8}};
}

// Returns the segment's scale word, the same in all its lanes.
MOEJIT_DEVICE float scale_word(const RunExponents& exponents) {
  const int32_t shift = segment_lane() / 4 * 8;
  const uint32_t own = (exponents.run[0] | (exponents.run[1] << 16)) << shift;
  return ptx::float_from_bits(own | ptx::shuffle_xor(own, 4));
}

// Returns the codes of run `run`, 8 values.
MOEJIT_DEVICE Bytes8 quantize_run(const Bf16Segment& values, int32_t run, float scale) {
  float value[kRunColumns];
  unpack_bf16(values.run[run], value);
  return {{quantize_quad(value, scale), quantize_quad(value + 4, scale)}};
}

// e4m3 with a scale for each 32 columns.
struct Quantize1x32 {
  static constexpr int32_t kSegmentsPerScale = 1;

  MOEJIT_DEVICE static QuantizedSegment apply(const ValueSegment& values) {
    return apply(pack_bf16(values));
  }
  MOEJIT_DEVICE static QuantizedSegment apply(const Bf16Segment& values) {
    const RunExponents exponents = find_run_exponents(values);
    return {.bytes = gather_runs(quantize_run(values, 0, scale_of_e8m0(exponents.run[0]).scale),
                                 quantize_run(values, 1, scale_of_e8m0(exponents.run[1]).scale)),
            .scale_inv = scale_word(exponents)};
  }
  MOEJIT_DEVICE static QuantizedGatedGradient apply(const GatedGradient& gradient) {
    const Bf16GatedGradient rounded = round_gated_gradient(gradient);
    const QuantizedSegment gate = apply(rounded.gate), up = apply(rounded.up);
    const bool is_up = segment_lane() >= kSegmentLanes / 2;
    return {.gate = gate.bytes,
            .up = up.bytes,
            .scale_inv = is_up ? up.scale_inv : gate.scale_inv,
            .dprob = rounded.dprob};
  }
  MOEJIT_DEVICE static StoredUpGradient<QuantizedSegment> apply(const UpGradient& gradient) {
    return {.up = apply(times_prob(gradient)), .dprob = sum_of_segment(gradient.dprob)};
  }
};

// The values that Quantize1x32 leaves, recovered in bf16: for GEMMs that know no such scales.
struct Recover1x32 {
  static constexpr int32_t kSegmentsPerScale = 1;

  MOEJIT_DEVICE static Bf16Segment apply(const ValueSegment& values) {
    return apply(pack_bf16(values));
  }
  MOEJIT_DEVICE static Bf16Segment apply(const Bf16Segment& values) {
    const RunExponents exponents = find_run_exponents(values);
    Bf16Segment recovered;
#pragma unroll
    for (int32_t run = 0; run < 2; ++run) {
      const BlockScale scale = scale_of_e8m0(exponents.run[run]);
      const Bytes8 codes = quantize_run(values, run, scale.scale);
      const Bytes8 low = recover_quad(codes.word[0], scale.scale_inv);
      const Bytes8 high = recover_quad(codes.word[1], scale.scale_inv);
      recovered.run[run] = {{low.word[0], low.word[1], high.word[0], high.word[1]}};
    }
    return recovered;
  }
  MOEJIT_DEVICE static Bf16GatedGradient apply(const GatedGradient& gradient) {
    const Bf16GatedGradient rounded = round_gated_gradient(gradient);
    return {.gate = apply(rounded.gate), .up = apply(rounded.up), .dprob = rounded.dprob};
  }
  MOEJIT_DEVICE static StoredUpGradient<Bf16Segment> apply(const UpGradient& gradient) {
    return {.up = apply(times_prob(gradient)), .dprob = sum_of_segment(gradient.dprob)};
  }
};

}  // namespace moejit::device
