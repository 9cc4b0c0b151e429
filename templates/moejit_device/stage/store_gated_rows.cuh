// SPDX-License-Identifier: Apache-2.0
#pragma once

// The store stage of rows that have two halves.

#include "moejit_device/core/gated_gradient.cuh"
#include "moejit_device/stage/interleaved.cuh"
#include "moejit_device/stage/store_rows.cuh"

namespace moejit::device {

// The gradients of gate and up side by side, and each segment's part of the probability's gradient;
// pad rows become zeros in all, and their input is not read. Rows from offs[E] on are left alone.
// Uses counts [E], offs [E + 1], output [P, 2C], output_dprobs [P, B] and, for quantized gradients,
// output_scale_inv [P, 2B], where B = ceil(C / 128). A half of an output row has kPitch columns, of
// which the last may be zeros that fill it up. With kInterleaved both alternate in bf16 rows.
// Without kTellsDprobs there are no parts of the probability's gradient, and no output_dprobs.
template <int32_t kColumns_, int32_t kLocalExperts, int32_t kPitch = kColumns_,
          bool kInterleaved = false, bool kTellsDprobs = true>
struct StoreGroupedGatedRows {
  static_assert(!kInterleaved || kPitch == kColumns_, "pairs of columns are not filled up");
  static_assert(kPitch == kColumns_ || kPitch == align_up(kColumns_, kSegmentColumns),
                "the last segment ends with the row, or is filled up");
  static constexpr int32_t kColumns = kColumns_;
  static constexpr bool kHasPads = true;
  using Rows = GroupedRows<kLocalExperts>;
  using Fetched = Nothing;

  MOEJIT_DEVICE static Fetched fetch(const RowChainParams&, const SegmentPosition<kColumns>&) {
    return {};
  }
  MOEJIT_DEVICE static void store(const RowChainParams& params, const SegmentPosition<kColumns>& at,
                                  const Fetched&, const QuantizedGatedGradient& segment) {
    static_assert(!kInterleaved, "quantised blocks are of gate or of up");
    const SegmentPosition<kPitch> gate = gate_of(at);
    const auto output = ptx::global(static_cast<E4m3*>(params.output));
    store_bytes(output, gate, segment.gate);
    store_bytes(output + kPitch, gate, segment.up);
    const int32_t lane = segment_lane();
    if (at.exists() && lane % (kSegmentLanes / 2) == 0) {
      const auto scales = ptx::global(params.output_scale_inv) + gate.scale_offset();
      // Transform stages give zeros for pad rows, of which everything but the scale is zero.
      ptx::store(scales + (lane == 0 ? 0 : gate.kPerRow), at.is_real() ? segment.scale_inv : 0.0f);
    }
    store_dprob(params, at, segment.dprob);
  }
  MOEJIT_DEVICE static void store(const RowChainParams& params, const SegmentPosition<kColumns>& at,
                                  const Fetched&, const CodesGatedGradient& segment) {
    static_assert(!kInterleaved, "columns of gate come before those of up");
    const SegmentPosition<kPitch> gate = gate_of(at);
    const auto output = ptx::global(static_cast<E4m3*>(params.output));
    store_bytes(output, gate, segment.gate);
    store_bytes(output + kPitch, gate, segment.up);
    store_dprob(params, at, segment.dprob);
  }
  MOEJIT_DEVICE static void store(const RowChainParams& params, const SegmentPosition<kColumns>& at,
                                  const Fetched&, const Bf16GatedGradient& segment) {
    const SegmentPosition<kPitch> gate = gate_of(at);
    const auto output = ptx::global(static_cast<Bf16*>(params.output));
    if constexpr (kInterleaved) {
      store_pairs(output, at, segment.gate, segment.up);
    } else {
      store_runs(output, gate, segment.gate);
      store_runs(output + kPitch, gate, segment.up);
    }
    store_dprob(params, at, segment.dprob);
  }
  MOEJIT_DEVICE static void finish(const RowChainParams&) {}

 private:
  // Row r is the rows 2r (gate) and 2r + 1 (up) of a matrix of kPitch columns.
  MOEJIT_DEVICE static SegmentPosition<kPitch> gate_of(const SegmentPosition<kColumns>& at) {
    return {2 * at.row, at.index, at.kind};
  }
  MOEJIT_DEVICE static void store_dprob(const RowChainParams& params,
                                        const SegmentPosition<kColumns>& at, float dprob) {
    if constexpr (kTellsDprobs) {
      if (!at.exists() || segment_lane() != 0) return;
      ptx::store(ptx::global(params.output_dprobs) + at.scale_offset(), dprob);
    }
  }
};

}  // namespace moejit::device
