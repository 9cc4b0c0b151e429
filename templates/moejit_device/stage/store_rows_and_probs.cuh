// SPDX-License-Identifier: Apache-2.0
#pragma once

// The store stage of the backward pass's unpermute, which also brings the gradients of the
// probabilities back to their tokens.

#include "moejit_device/map/unpermute_dprobs.cuh"
#include "moejit_device/stage/store_rows.cuh"

namespace moejit::device {

// Every row of the input, as StoreRows, and DprobsOfChoices beside them. Uses the fields of both.
// Prob is the type of dprobs: float or Bf16.
template <int32_t kColumns_, int32_t kTopK, int32_t kDprobsColumns, bool kAddsBiasDprobs = false,
          typename Prob = float>
struct StoreRowsAndProbs {
  static constexpr int32_t kColumns = kColumns_;
  static constexpr bool kHasPads = false;
  using Rows = AllRows;
  using Fetched = Nothing;

  MOEJIT_DEVICE static Fetched fetch(const RowChainParams&, const SegmentPosition<kColumns>&) {
    return {};
  }
  template <typename Segment>
  MOEJIT_DEVICE static void store(const RowChainParams& params, const SegmentPosition<kColumns>& at,
                                  const Fetched& where, const Segment& segment) {
    StoreRows<kColumns>::store(params, at, where, segment);
  }
  // The choices fill few CTAs, the first ones, which the others do not wait for; beside the rows, a
  // warp that has one would hold its place for these loads too.
  MOEJIT_DEVICE static void finish(const RowChainParams& params) {
    DprobsOfChoices<kTopK, kDprobsColumns, kAddsBiasDprobs, Prob>::store(params);
  }
};

}  // namespace moejit::device
