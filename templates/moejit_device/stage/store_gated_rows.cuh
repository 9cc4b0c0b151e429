// SPDX-License-Identifier: Apache-2.0
#pragma once

// The store stage of rows that have two halves.

#include "moejit_device/core/gated_gradient.cuh"
#include "moejit_device/stage/store_rows.cuh"

namespace moejit::device {

// The gradients of gate and up side by side, and each segment's part of the probability's gradient;
// pad rows become zeros in all, and their input is not read. Rows from offs[E] on are left alone.
// Uses counts [E], offs [E + 1], output [P, 2C], output_scale_inv [P, 2B], output_dprobs [P, B],
// where B = ceil(C / 128).
template <int32_t kColumns_, int32_t kLocalExperts>
struct StoreGroupedGatedRows {
  static constexpr int32_t kColumns = kColumns_;
  static constexpr bool kHasPads = true;
  using Rows = GroupedRows<kLocalExperts>;
  using Fetched = Nothing;

  MOEJIT_DEVICE static Fetched fetch(const RowChainParams&, const SegmentPosition<kColumns>&) {
    return {};
  }
  MOEJIT_DEVICE static void store(const RowChainParams& params, const SegmentPosition<kColumns>& at,
                                  const Fetched&, const QuantizedGatedGradient& segment) {
    // Load stages give zeros for pad rows, of which everything but the scale is zero by itself.
    write(params, at,
          {segment.gate, segment.up, at.is_real() ? segment.scale_inv : 0.0f, segment.dprob});
  }
  // Where a whole warp has pad rows there is nothing to compute.
  MOEJIT_DEVICE static void store_zeros(const RowChainParams& params,
                                        const SegmentPosition<kColumns>& at) {
    write(params, at, {});
  }
  MOEJIT_DEVICE static void finish(const RowChainParams&) {}

 private:
  MOEJIT_DEVICE static void write(const RowChainParams& params, const SegmentPosition<kColumns>& at,
                                  const QuantizedGatedGradient& segment) {
    // Row r is the rows 2r (gate) and 2r + 1 (up) of a matrix of C columns.
    SegmentPosition<kColumns> half = at;
    half.row = 2 * at.row;
    const auto output = ptx::global(static_cast<E4m3*>(params.output));
    store_bytes(output, half, segment.gate);
    store_bytes(output + kColumns, half, segment.up);
    if (!at.exists()) return;
    const int32_t lane = segment_lane();
    if (lane % (kSegmentLanes / 2) == 0) {
      const auto scales = ptx::global(params.output_scale_inv) + half.scale_offset();
      ptx::store(scales + (lane == 0 ? 0 : half.kPerRow), segment.scale_inv);
    }
    if (lane == 0) {
      ptx::store(ptx::global(params.output_dprobs) + at.scale_offset(), segment.dprob);
    }
  }
};

}  // namespace moejit::device
