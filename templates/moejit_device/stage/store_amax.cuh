// SPDX-License-Identifier: Apache-2.0
#pragma once

// Store stages that keep only magnitudes: the largest one of each set of four segments of a row, as
// the values are in bf16. NaN counts as nothing. What groups have of them becomes their scales:
// cast/expert_scales.cuh. A warp holds a set (RoundSetsOfSegments).

#include "moejit_device/core/row_scaled.cuh"
#include "moejit_device/stage/destinations.cuh"
#include "moejit_device/stage/store_rows.cuh"

namespace moejit::device {

template <int32_t kColumns>
struct AmaxOfSets {
  static constexpr int32_t kPerRow =
      ceil_div(SegmentPosition<kColumns>::kPerRow, kWarpSegments);  // of a row

  // Returns the largest magnitude of the warp's set, in all lanes.
  template <typename Segment>
  MOEJIT_DEVICE static float of_warp(const Segment& segment) {
    float amax = max_of_segment(magnitude_of_lane(segment));
#pragma unroll
    for (int32_t mask = kSegmentLanes; mask < 32; mask *= 2) {
      amax = ptx::max_number(amax, ptx::shuffle_xor(amax, mask));
    }
    return amax;
  }
  // Returns the place of a set in `row`, of `output` [rows, kPerRow].
  MOEJIT_DEVICE static ptx::GlobalPtr<float> place(const RowChainParams& params,
                                                   const SegmentPosition<kColumns>& at,
                                                   int64_t row) {
    return ptx::global(static_cast<float*>(params.output)) +
           (row * kPerRow + at.index / kWarpSegments);
  }
};

// The rows of all groups; pad rows get 0. Uses counts [E], offs [E + 1], output [P, ceil(C / 512)].
template <int32_t kColumns_, int32_t kLocalExperts>
struct StoreGroupedAmax {
  static constexpr int32_t kColumns = kColumns_;
  static constexpr bool kHasPads = true;
  using Rows = GroupedRows<kLocalExperts>;
  using Fetched = Nothing;
  using Sets = AmaxOfSets<kColumns>;

  MOEJIT_DEVICE static Fetched fetch(const RowChainParams&, const SegmentPosition<kColumns>&) {
    return {};
  }
  template <typename Segment>
  MOEJIT_DEVICE static void store(const RowChainParams& params, const SegmentPosition<kColumns>& at,
                                  const Fetched&, const Segment& segment) {
    const float amax = Sets::of_warp(segment);
    if (!at.exists() || ptx::lane_index() != 0) return;
    ptx::store(Sets::place(params, at, at.row), at.is_real() ? amax : 0.0f);
  }
  MOEJIT_DEVICE static void finish(const RowChainParams&) {}
};

// A token's magnitudes at every destination of its row, 0 where its probability is 0 and moves,
// since such a row is zeros. Pad rows get nothing. Uses row_map [T, K], with kMovesProbs probs
// [T, K], and output [P, ceil(C / 512)].
template <int32_t kColumns_, int32_t kTopK, bool kMovesProbs, typename Prob = float>
struct StorePermutedAmax {
  static constexpr int32_t kColumns = kColumns_;
  static constexpr bool kHasPads = false;
  using Rows = AllRows;
  using To = Destinations<kColumns, kTopK, kMovesProbs, Prob>;
  using Batch = typename To::Batch;
  using Fetched = Batch;
  using Sets = AmaxOfSets<kColumns>;

  MOEJIT_DEVICE static Fetched fetch(const RowChainParams& params,
                                     const SegmentPosition<kColumns>& at) {
    return To::fetch(params, at, 0);
  }
  MOEJIT_DEVICE static bool has_destination(const Fetched& first) { return To::exist(first); }
  MOEJIT_DEVICE static void store(const RowChainParams& params, const SegmentPosition<kColumns>& at,
                                  const Fetched& first, const Bf16Segment& segment) {
    const float amax = Sets::of_warp(segment);
    store_batch(params, at, first, amax);
    for (int32_t k = kSegmentLanes; k < kTopK; k += kSegmentLanes) {
      store_batch(params, at, To::fetch(params, at, k), amax);
    }
  }
  MOEJIT_DEVICE static void finish(const RowChainParams&) {}

 private:
  // Each lane of the first segment for its own destination.
  MOEJIT_DEVICE static void store_batch(const RowChainParams& params,
                                        const SegmentPosition<kColumns>& at, const Batch& batch,
                                        float amax) {
    if (segment_of_lane() != 0 || batch.row < 0) return;
    ptx::store(Sets::place(params, at, batch.row), batch.prob == 0.0f ? 0.0f : amax);
  }
};

}  // namespace moejit::device
