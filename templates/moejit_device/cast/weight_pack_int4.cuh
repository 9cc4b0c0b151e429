// SPDX-License-Identifier: Apache-2.0
#pragma once

// INT4 in packed tiles, as gemm/int4_mainloop.cuh reads them.

#include "moejit_device/cast/weight_pack_bf16.cuh"
#include "moejit_device/ptx/convert.cuh"

namespace moejit::device {

struct PackInt4 {
  static constexpr int32_t kGroup = 128;

  MOEJIT_DEVICE static uint32_t word(const uint32_t (&pairs)[4]) {
    uint32_t word = 0;
#pragma unroll
    for (int32_t i = 0; i < 4; ++i)
      word |= (pairs[i] & 15u) << (4 * i) | (pairs[i] >> 4) << (16 + 4 * i);
    return word;
  }

  template <int32_t kColumns>
  MOEJIT_DEVICE static bool take_scales(const WeightPackBf16Params& params, int64_t row,
                                        int32_t column, PackedPart& part) {
    const int64_t place = row * (kColumns / kGroup) + column / kGroup;
    const float scale =
        ptx::load(ptx::as<const float>(ptx::global(params.input_scale_inv)) + place);
    const uint32_t zero = ptx::load(ptx::global(params.input_zero) + place);
    const uint32_t bits = ptx::bits_of(scale);
    // The lower half of the word belongs to the first 32 columns of a tile.
    part.scales = column % 64 == 0 ? (bits & 0xff00u) | zero : bits >> 16;
    return (bits & 0xffu) == 0 && zero <= kMostZero && ptx::absolute(scale) <= 3.4028235e38f;
  }

 private:
  static constexpr uint32_t kMostZero = 16;
};

}  // namespace moejit::device
