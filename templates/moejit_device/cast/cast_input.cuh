// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the cast reads: a lane's share of a segment, as it came. An input format has
//
//   Element        of the tensor
//   Segment        16 values of a lane; eight lanes hold 128 columns
//   kThreadsPerSm  how many threads' loads an SM should have in flight
//   fetch()        from the segment's first column on, of which `columns` exist, a multiple of 16;
//                  every access of eight lanes is contiguous
//   max_magnitude  of several segments; NaN counts as nothing
//   cast()         to 16 bytes of neighboring columns; all lanes of a warp together
//   byte_column()  the first of them
//   value_of()     an element as a float, exact

#include "moejit_device/cast/fp8_cast.cuh"
#include "moejit_device/core/segment.cuh"

namespace moejit::device {

struct Bf16Input {
  using Element = Bf16;
  using Segment = Bf16Segment;
  static constexpr int32_t kThreadsPerSm = 1024;

  MOEJIT_DEVICE static Segment fetch(ptx::GlobalPtr<const Bf16> first, int32_t columns) {
    Segment segment = {};
#pragma unroll
    for (int32_t run = 0; run < 2; ++run) {
      if (run_column(run) >= columns) continue;
      segment.run[run] = ptx::load_streaming(ptx::as<const Bytes16>(first + run_column(run)));
    }
    return segment;
  }

  template <int32_t kCount>
  MOEJIT_DEVICE static float max_magnitude(const Segment (&segment)[kCount]) {
    return device::max_magnitude(segment);
  }

  template <typename Format>
  MOEJIT_DEVICE static Bytes16 cast(const Segment& segment, float scale) {
    return gather_runs(cast_run<Format>(segment.run[0], scale),
                       cast_run<Format>(segment.run[1], scale));
  }
  MOEJIT_DEVICE static int32_t byte_column() { return device::byte_column(); }

  MOEJIT_DEVICE static float value_of(Bf16 element) {
    return ptx::float_from_bf16_low(element.bits);
  }

 private:
  template <typename Format>
  MOEJIT_DEVICE static Bytes8 cast_run(const Bytes16& run, float scale) {
    float value[kRunColumns];
    unpack_bf16(run, value);
    return {{cast_quad<Format>(value, scale), cast_quad<Format>(value + 4, scale)}};
  }
};

// Four runs of four columns a lane, 32 columns apart. Four neighboring lanes exchange words, so
// that each has what all of them read of one run.
struct F32Input {
  using Element = float;
  struct Segment {
    Bytes16 run[4];
  };
  static constexpr int32_t kThreadsPerSm = 512;

  MOEJIT_DEVICE static Segment fetch(ptx::GlobalPtr<const float> first, int32_t columns) {
    Segment segment = {};
#pragma unroll
    for (int32_t run = 0; run < 4; ++run) {
      const int32_t column = 32 * run + 4 * segment_lane();
      if (column >= columns) continue;
      segment.run[run] = ptx::load_streaming(ptx::as<const Bytes16>(first + column));
    }
    return segment;
  }

  template <int32_t kCount>
  MOEJIT_DEVICE static float max_magnitude(const Segment (&segment)[kCount]) {
    float amax = 0.0f;
#pragma unroll
    for (int32_t i = 0; i < 16 * kCount; ++i) {
      const uint32_t bits = segment[i / 16].run[i / 4 % 4].word[i % 4];
      amax = ptx::max_number(amax, ptx::absolute(ptx::float_from_bits(bits)));
    }
    return amax;
  }

  template <typename Format>
  MOEJIT_DEVICE static Bytes16 cast(const Segment& segment, float scale) {
    Bytes16 bytes;
#pragma unroll
    for (int32_t run = 0; run < 4; ++run) {
      float value[4];
#pragma unroll
      for (int32_t i = 0; i < 4; ++i) value[i] = ptx::float_from_bits(segment.run[run].word[i]);
      bytes.word[run] = cast_quad<Format>(value, scale);
    }
    exchange<1>(bytes.word[0], bytes.word[1]);
    exchange<1>(bytes.word[2], bytes.word[3]);
    exchange<2>(bytes.word[0], bytes.word[2]);
    exchange<2>(bytes.word[1], bytes.word[3]);
    return bytes;
  }
  MOEJIT_DEVICE static int32_t byte_column() {
    const int32_t lane = segment_lane();
    return 32 * (lane % 4) + 16 * (lane / 4);
  }

  MOEJIT_DEVICE static float value_of(float element) { return element; }

 private:
  // Exchanges words between two lanes whose numbers differ in the bit kMask: the lower one gets
  // both first words, the upper one both second words.
  template <int32_t kMask>
  MOEJIT_DEVICE static void exchange(uint32_t& first, uint32_t& second) {
    const bool is_upper = (ptx::lane_index() & kMask) != 0;
    const uint32_t received = ptx::shuffle_xor(is_upper ? first : second, kMask);
    (is_upper ? first : second) = received;
  }
};

}  // namespace moejit::device
