// SPDX-License-Identifier: Apache-2.0
#pragma once

// A segment is 128 neighboring columns of one row: the group of elements that shares a 1x128
// scale. Eight neighboring lanes hold it, 16 elements each, so a warp holds four segments and
// every access of a warp is contiguous within a segment.
//
//   values (fp32 or bf16), two runs of 8:   lane l has columns [8l, 8l + 8) and [64 + 8l, 72 + 8l)
//   bytes (e4m3), one run of 16:            lane l has columns [16b, 16b + 16), b = l/2 + 4(l%2)
//
// With two runs each 16-byte access to bf16 covers 128 contiguous bytes of a segment. Lanes 2j and
// 2j + 1 hold the same four runs of 8 in both arrangements, so the change is one exchange between
// neighbors.

#include "moejit_device/core/numeric.cuh"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

inline constexpr int32_t kSegmentColumns = 128;
inline constexpr int32_t kSegmentLanes = 8;
inline constexpr int32_t kWarpSegments = 32 / kSegmentLanes;
inline constexpr int32_t kLaneColumns = kSegmentColumns / kSegmentLanes;
inline constexpr int32_t kRunColumns = 8;  // 16 bytes of bf16

// This lane's share of a segment.
struct ValueSegment {
  float value[kLaneColumns];
};
struct Bf16Segment {
  Bytes16 run[2];
};
struct QuantizedSegment {
  Bytes16 bytes;
  float scale_inv;  // the same in all lanes of the segment
};

// Codes whose scale is known beforehand, and so lies elsewhere.
struct CodesSegment {
  Bytes16 bytes;
};

// Return the index of this lane in its segment, and of its segment in the warp.
MOEJIT_DEVICE int32_t segment_lane() { return ptx::lane_index() % kSegmentLanes; }
MOEJIT_DEVICE int32_t segment_of_lane() { return ptx::lane_index() / kSegmentLanes; }

// Return the first column, within the segment, of this lane's run 0 or 1 of values, and of its
// bytes.
MOEJIT_DEVICE int32_t run_column(int32_t run) {
  return kSegmentColumns / 2 * run + kRunColumns * segment_lane();
}
MOEJIT_DEVICE int32_t byte_column() {
  const int32_t lane = segment_lane();
  return kSegmentColumns / 2 * (lane % 2) + 2 * kRunColumns * (lane / 2);
}

// Returns the value that lane `lane` of this lane's segment holds.
template <typename T>
MOEJIT_DEVICE T shuffle_in_segment(T value, int32_t lane) {
  return ptx::shuffle(value, segment_of_lane() * kSegmentLanes + lane);
}

// Returns the largest of the eight lanes' values, in all of them.
MOEJIT_DEVICE float max_of_segment(float value) {
#pragma unroll
  for (int32_t mask = kSegmentLanes / 2; mask > 0; mask /= 2) {
    value = ptx::max_number(value, ptx::shuffle_xor(value, mask));
  }
  return value;
}

// Returns the sum of the eight lanes' values, the same in all lanes:
//   ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7))
MOEJIT_DEVICE float sum_of_segment(float value) {
#pragma unroll
  for (int32_t mask = 1; mask < kSegmentLanes; mask *= 2) {
    value = ptx::add(value, ptx::shuffle_xor(value, mask));
  }
  return value;
}

// Converts bf16 pairs to fp32, exactly.
MOEJIT_DEVICE void unpack_bf16(const Bytes16& bytes, float* value) {
#pragma unroll
  for (int32_t i = 0; i < 4; ++i) {
    value[2 * i] = ptx::float_from_bf16_low(bytes.word[i]);
    value[2 * i + 1] = ptx::float_from_bf16_high(bytes.word[i]);
  }
}

MOEJIT_DEVICE ValueSegment unpack_bf16(const Bf16Segment& segment) {
  ValueSegment values;
  unpack_bf16(segment.run[0], values.value);
  unpack_bf16(segment.run[1], values.value + kRunColumns);
  return values;
}

// Returns the largest magnitude of several segments' shares; NaN counts as nothing. Two at a time,
// as they came: unpacked, all values would wait in registers for their scale.
template <int32_t kCount>
MOEJIT_DEVICE float max_magnitude(const Bf16Segment (&segment)[kCount]) {
  uint32_t amax = 0;
#pragma unroll
  for (int32_t i = 0; i < kCount; ++i) {
#pragma unroll
    for (int32_t w = 0; w < 8; ++w) {
      amax = ptx::larger_bf16_magnitudes(amax, segment[i].run[w / 4].word[w % 4]);
    }
  }
  return ptx::max_number(ptx::absolute(ptx::float_from_bf16_low(amax)),
                         ptx::absolute(ptx::float_from_bf16_high(amax)));
}

// Rounds once to bf16.
MOEJIT_DEVICE Bf16Segment pack_bf16(const ValueSegment& values) {
  Bf16Segment segment;
#pragma unroll
  for (int32_t i = 0; i < kLaneColumns / 2; ++i) {
    segment.run[i / 4].word[i % 4] = ptx::bf16_pair(values.value[2 * i], values.value[2 * i + 1]);
  }
  return segment;
}

// Gathers two runs of 8 bytes into one of 16: the even lane of a pair keeps its run 0 and gets the
// neighbor's; the odd lane keeps and gets run 1.
MOEJIT_DEVICE Bytes16 gather_runs(const Bytes8& run0, const Bytes8& run1) {
  const bool is_odd = segment_lane() % 2 != 0;
  const Bytes8 kept = is_odd ? run1 : run0;
  const Bytes8 given = is_odd ? run0 : run1;
  const uint32_t received[2] = {ptx::shuffle_xor(given.word[0], 1),
                                ptx::shuffle_xor(given.word[1], 1)};
  return is_odd ? Bytes16{{received[0], received[1], kept.word[0], kept.word[1]}}
                : Bytes16{{kept.word[0], kept.word[1], received[0], received[1]}};
}

// Returns the cast of values times `scale`.
MOEJIT_DEVICE Bytes16 quantize_values(const ValueSegment& values, float scale) {
  uint32_t word[4];
#pragma unroll
  for (int32_t i = 0; i < 4; ++i) word[i] = quantize_quad(values.value + 4 * i, scale);
  return gather_runs({{word[0], word[1]}}, {{word[2], word[3]}});
}

// Returns the cast of a segment whose scale is known.
MOEJIT_DEVICE QuantizedSegment quantize_segment(const ValueSegment& values,
                                                const BlockScale& scale) {
  return {.bytes = quantize_values(values, scale.scale), .scale_inv = scale.scale_inv};
}

}  // namespace moejit::device
