// SPDX-License-Identifier: Apache-2.0
#pragma once

// Rows of gradients times the bias of their group. A warp takes a row: each lane adds up its
// columns in ascending order, then the lanes their sums in a fixed tree.

#include "moejit_device/bias/gradient_rows.cuh"
#include "moejit_device/map/call_tokens.cuh"
#include "moejit_device/map/splits.cuh"

namespace moejit::device {

// Writes output [P], 0 for pad rows. Rows from offs[E] on are left alone.
template <typename GradientRows, int32_t kGroups, int32_t kThreads_>
struct RowDots {
  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kCtasPerSm = larger(1024 / kThreads, int32_t{1});
  static constexpr int32_t kSharedBytes = 0;

  MOEJIT_DEVICE static void run(const BiasGradientParams& params) {
    if (has_other_tokens(params.call)) return;
    const Splits<kGroups> splits{ptx::global(params.counts), ptx::global(params.offs)};
    const int64_t rows = smaller(int64_t{splits.rows()}, params.rows);
    const int64_t warps = int64_t{ptx::cta_count()} * (kThreads / 32);
    for (int64_t row = int64_t{ptx::cta_index()} * (kThreads / 32) + ptx::warp_index(); row < rows;
         row += warps) {
      const int32_t group = splits.find(row);
      const bool is_real = row < splits.begin(group) + splits.count(group);
      const float sum = is_real ? dot(params, row, group) : 0.0f;
      if (ptx::lane_index() == 0) ptx::store(ptx::global(params.output) + row, sum);
    }
  }

 private:
  static constexpr int32_t kColumns = GradientRows::kColumns;
  static constexpr int32_t kSegments = ceil_div(kColumns, kSegmentColumns);

  MOEJIT_DEVICE static float dot(const BiasGradientParams& params, int64_t row, int32_t group) {
    float sum = 0.0f;
#pragma unroll 2
    for (int32_t first = 0; first < kSegments; first += kWarpSegments) {
      const int32_t segment = first + segment_of_lane();
      const RowKind kind = segment < kSegments ? RowKind::kReal : RowKind::kAbsent;
      const GradientValues values = GradientRows::load(params, {row, segment, kind});
      const auto bias = ptx::as<const uint16_t>(ptx::global(params.bias)) +
                        (static_cast<int64_t>(group) * kColumns + segment * kSegmentColumns);
      float part = 0.0f;
#pragma unroll
      for (int32_t i = 0; i < kLaneColumns; ++i) {
        const int32_t column = GradientRows::column(i);
        float factor = 0.0f;
        if (segment * kSegmentColumns + column < kColumns) {
          factor = ptx::float_from_bits(static_cast<uint32_t>(ptx::load(bias + column)) << 16);
        }
        part = ptx::fused_multiply_add(values.value[i], factor, part);
      }
      sum = ptx::fused_multiply_add(part, values.factor, sum);
    }
    sum = sum_of_segment(sum);
#pragma unroll
    for (int32_t mask = kSegmentLanes; mask < 32; mask *= 2) {
      sum = ptx::add(sum, ptx::shuffle_xor(sum, mask));
    }
    return sum;
  }
};

}  // namespace moejit::device
