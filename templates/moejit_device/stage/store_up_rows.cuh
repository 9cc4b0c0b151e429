// SPDX-License-Identifier: Apache-2.0
#pragma once

// The store stage of gradients of rows without a gate.

#include "moejit_device/core/up_gradient.cuh"
#include "moejit_device/stage/store_rows.cuh"

namespace moejit::device {

// Writes what StoreGroupedRows writes, and each segment's part of the probability's gradient, 0 in
// pad rows. Uses output_dprobs [P, ceil(C / 128)] and what StoreGroupedRows uses. Without
// kTellsDprobs there are no such parts, and no output_dprobs.
template <int32_t kColumns_, int32_t kLocalExperts, bool kTellsDprobs = true>
struct StoreGroupedUpRows {
  static constexpr int32_t kColumns = kColumns_;
  static constexpr bool kHasPads = true;
  using Rows = GroupedRows<kLocalExperts>;
  using Fetched = Nothing;

  MOEJIT_DEVICE static Fetched fetch(const RowChainParams&, const SegmentPosition<kColumns>&) {
    return {};
  }
  template <typename Segment>
  MOEJIT_DEVICE static void store(const RowChainParams& params, const SegmentPosition<kColumns>& at,
                                  const Fetched& where, const StoredUpGradient<Segment>& segment) {
    StoreGroupedRows<kColumns, kLocalExperts>::store(params, at, where, segment.up);
    if constexpr (kTellsDprobs) {
      if (!at.exists() || segment_lane() != 0) return;
      ptx::store(ptx::global(params.output_dprobs) + at.scale_offset(),
                 at.is_real() ? segment.dprob : 0.0f);
    }
  }
  MOEJIT_DEVICE static void finish(const RowChainParams&) {}
};

}  // namespace moejit::device
