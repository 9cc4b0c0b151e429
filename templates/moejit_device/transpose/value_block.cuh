// SPDX-License-Identifier: Apache-2.0
#pragma once

// 16 rows of 8 bf16 values in the registers of one thread, cast to e4m3 with a scale for every
// column of 128 rows. Two warps hold 64 columns of a tile, 64 rows each, in the arrangement of
// byte_block.cuh: a row's 64 columns are 128 bytes, 16 to a lane, read as they lie; a column leaves
// as 16 bytes of each of eight lanes. Values never go through another thread: the two warps only
// exchange the largest magnitudes of their columns.

#include "moejit_device/core/numeric.cuh"
#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/transpose/byte_block.cuh"
#include "moejit_device/transpose/column_scales.cuh"

namespace moejit::device {

inline constexpr int32_t kValueBlockColumns = 8;
inline constexpr int32_t kPairColumns = 64;            // that two warps hold
inline constexpr int32_t kPairSlotBytes = 2 * 64 * 2;  // a magnitude of each column, of each warp

// Returns the first of this lane's columns among the 64.
MOEJIT_DEVICE int32_t value_column() {
  return column_group_of(ptx::lane_index()) * kValueBlockColumns;
}

// Returns the larger magnitudes of eight pairs of bf16; NaN counts as nothing. Signs are not
// defined.
MOEJIT_DEVICE Bytes16 larger_magnitudes(const Bytes16& a, const Bytes16& b) {
  Bytes16 larger;
#pragma unroll
  for (int32_t w = 0; w < 4; ++w) {
    larger.word[w] = ptx::larger_bf16_magnitudes(a.word[w], b.word[w]);
  }
  return larger;
}

// Returns the largest magnitudes of this lane's columns in the lanes of all four groups of rows:
// those that are multiples of 8 apart.
MOEJIT_DEVICE Bytes16 max_of_row_groups(Bytes16 amax) {
#pragma unroll
  for (int32_t mask = 8; mask < 32; mask *= 2) {
    Bytes16 other;
#pragma unroll
    for (int32_t w = 0; w < 4; ++w) other.word[w] = ptx::shuffle_xor(amax.word[w], mask);
    amax = larger_magnitudes(amax, other);
  }
  return amax;
}

// Computes the scales of eight columns from their largest magnitudes.
template <uint32_t kEpsilonBits>
MOEJIT_DEVICE void scales_of_magnitudes(const Bytes16& amax,
                                        BlockScale (&scale)[kValueBlockColumns]) {
#pragma unroll
  for (int32_t w = 0; w < 4; ++w) {
    const uint32_t pair = amax.word[w];
    scale[2 * w] =
        e4m3_scale_from_amax<kEpsilonBits>(ptx::absolute(ptx::float_from_bf16_low(pair)));
    scale[2 * w + 1] =
        e4m3_scale_from_amax<kEpsilonBits>(ptx::absolute(ptx::float_from_bf16_high(pair)));
  }
}

struct ValueBlock {
  ByteBlock rows;  // bf16, in the order of memory

  // Raises the magnitudes of this lane's columns to the magnitudes of the values in its rows.
  MOEJIT_DEVICE void raise_magnitudes(Bytes16& amax) const {
#pragma unroll
    for (int32_t r = 0; r < kBlockBytes; ++r) amax = larger_magnitudes(amax, rows.row[r]);
  }

  // Returns the scales of this lane's columns over 128 rows, of both warps, which meet at
  // `barrier`. `slots` are kPairSlotBytes: reads of values before must have ended.
  template <uint32_t kEpsilonBits>
  MOEJIT_DEVICE void find_scales(ptx::SharedPtr<Bytes16> slots, int32_t barrier,
                                 BlockScale (&scale)[kValueBlockColumns]) const {
    constexpr int32_t kWarpSlots = kPairColumns / kValueBlockColumns;
    const int32_t lane = ptx::lane_index();
    const Bytes16 own = magnitudes_of_warp();
    if (lane < kWarpSlots) ptx::store(slots + (ptx::warp_index() % 2 * kWarpSlots + lane), own);
    ptx::sync_named(barrier, 64);
    const int32_t column_group = column_group_of(lane);
    const Bytes16 upper = ptx::load(slots + column_group);
    const Bytes16 lower = ptx::load(slots + (kWarpSlots + column_group));
    scales_of_magnitudes<kEpsilonBits>(larger_magnitudes(upper, lower), scale);
  }

  // Casts column i and stores it at `target` + kPitch * i.
  template <int64_t kPitch = 128>
  MOEJIT_DEVICE void store_columns(const BlockScale (&scale)[kValueBlockColumns],
                                   ptx::GlobalPtr<uint8_t> target) const {
#pragma unroll
    for (int32_t i = 0; i < kValueBlockColumns; ++i) {
      Bytes16 column;
#pragma unroll
      for (int32_t q = 0; q < 4; ++q) {
        float value[4];
#pragma unroll
        for (int32_t r = 0; r < 4; ++r) {
          const uint32_t pair = rows.row[4 * q + r].word[i / 2];
          value[r] = i % 2 == 0 ? ptx::float_from_bf16_low(pair) : ptx::float_from_bf16_high(pair);
        }
        column.word[q] = quantize_quad(value, scale[i].scale);
      }
      ptx::store_streaming(ptx::as<Bytes16>(target + kPitch * i), column);
    }
  }

 private:
  // Returns the largest magnitudes of this lane's columns in the warp's 64 rows, bf16, the same in
  // the lanes of all groups of rows; NaN counts as nothing. Signs are not defined.
  MOEJIT_DEVICE Bytes16 magnitudes_of_warp() const {
    Bytes16 amax = {};
    raise_magnitudes(amax);
    return max_of_row_groups(amax);
  }
};

// Stores the scales of this lane's columns, the first of them at `target`. One lane of those that
// hold the same columns.
MOEJIT_DEVICE void store_scales(const BlockScale (&scale)[kValueBlockColumns],
                                ptx::GlobalPtr<float> target) {
#pragma unroll
  for (int32_t i = 0; i < kValueBlockColumns; i += 4) {
    const Bytes16 run = {{ptx::bits_of(scale[i].scale_inv), ptx::bits_of(scale[i + 1].scale_inv),
                          ptx::bits_of(scale[i + 2].scale_inv),
                          ptx::bits_of(scale[i + 3].scale_inv)}};
    ptx::store(ptx::as<Bytes16>(target + i), run);
  }
}

// Loads the scales of eight columns, the first of them at `scales`.
MOEJIT_DEVICE void load_scales(ptx::GlobalPtr<const float> scales,
                               BlockScale (&scale)[kValueBlockColumns]) {
#pragma unroll
  for (int32_t i = 0; i < kValueBlockColumns; i += 4) {
    const Bytes16 run = ptx::load(ptx::as<const Bytes16>(scales + i));
#pragma unroll
    for (int32_t w = 0; w < 4; ++w) {
      scale[i + w] = scale_of_inverse(ptx::float_from_bits(run.word[w]));
    }
  }
}

}  // namespace moejit::device
