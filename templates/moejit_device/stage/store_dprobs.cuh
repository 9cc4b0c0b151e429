// SPDX-License-Identifier: Apache-2.0
#pragma once

// The store stage of gradients of which only the probability's is wanted.

#include "moejit_device/stage/store_rows.cuh"

namespace moejit::device {

// Each segment's part of the probability's gradient, 0 in pad rows; the gradients of gate and up
// are dropped. Rows from offs[E] on are left alone. Uses counts [E], offs [E + 1] and output_dprobs
// [P, ceil(C / 128)].
template <int32_t kColumns_, int32_t kLocalExperts>
struct StoreGroupedDprobs {
  static constexpr int32_t kColumns = kColumns_;
  static constexpr bool kHasPads = true;
  using Rows = GroupedRows<kLocalExperts>;
  using Fetched = Nothing;

  MOEJIT_DEVICE static Fetched fetch(const RowChainParams&, const SegmentPosition<kColumns>&) {
    return {};
  }
  template <typename Segment>
  MOEJIT_DEVICE static void store(const RowChainParams& params, const SegmentPosition<kColumns>& at,
                                  const Fetched&, const Segment& segment) {
    if (!at.exists() || segment_lane() != 0) return;
    ptx::store(ptx::global(params.output_dprobs) + at.scale_offset(),
               at.is_real() ? segment.dprob : 0.0f);
  }
  MOEJIT_DEVICE static void finish(const RowChainParams&) {}
};

}  // namespace moejit::device
