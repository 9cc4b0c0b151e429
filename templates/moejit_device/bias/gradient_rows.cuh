// SPDX-License-Identifier: Apache-2.0
#pragma once

// Rows of gradients as fp32, a segment at a time: bf16, or e4m3 with compact scales. Which columns
// a lane has differs between the two.

#include "moejit_device/params/bias_gradient_params.h"
#include "moejit_device/ptx/f16.cuh"
#include "moejit_device/stage/position.cuh"

namespace moejit::device {

// This lane's 16 values, each to be multiplied with `factor`; zeros in columns outside the row.
struct GradientValues {
  float value[kLaneColumns];
  float factor;
};

template <int32_t kColumns_>
struct Bf16GradientRows {
  static constexpr int32_t kColumns = kColumns_;

  // Returns the column of lane value `i` within the segment.
  MOEJIT_DEVICE static int32_t column(int32_t i) {
    return run_column(i / kRunColumns) + i % kRunColumns;
  }
  MOEJIT_DEVICE static GradientValues load(const BiasGradientParams& params,
                                           const SegmentPosition<kColumns>& at) {
    const auto input = ptx::global(static_cast<const Bf16*>(params.input));
    const ValueSegment values = unpack_bf16(fetch_runs(input, at, at.row, at.is_real()));
    GradientValues result;
#pragma unroll
    for (int32_t i = 0; i < kLaneColumns; ++i) result.value[i] = values.value[i];
    result.factor = 1.0f;
    return result;
  }
};

template <int32_t kColumns_>
struct E4m3GradientRows {
  static constexpr int32_t kColumns = kColumns_;

  MOEJIT_DEVICE static int32_t column(int32_t i) { return byte_column() + i; }
  MOEJIT_DEVICE static GradientValues load(const BiasGradientParams& params,
                                           const SegmentPosition<kColumns>& at) {
    const auto input = ptx::global(static_cast<const E4m3*>(params.input));
    const int32_t first = byte_column();
    Bytes16 bytes = {};
    GradientValues result;
    result.factor = 0.0f;
    if (at.is_real()) {
      result.factor = ptx::load(ptx::global(params.input_scale_inv) + at.scale_offset());
      if (at.is_inside(first)) {
        bytes = ptx::load_streaming(ptx::as<const Bytes16>(input + at.offset(first)));
      }
    }
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) {
      const ptx::F16Quad quad = ptx::f16_from_e4m3(bytes.word[i]);
      result.value[4 * i] = ptx::float_from_f16_low(quad.low);
      result.value[4 * i + 1] = ptx::float_from_f16_high(quad.low);
      result.value[4 * i + 2] = ptx::float_from_f16_low(quad.high);
      result.value[4 * i + 3] = ptx::float_from_f16_high(quad.high);
    }
    return result;
  }
};

}  // namespace moejit::device
