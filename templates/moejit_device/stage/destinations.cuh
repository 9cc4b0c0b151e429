// SPDX-License-Identifier: Apache-2.0
#pragma once

// The rows that a token's row goes to: row_map [T, K] and, with kMovesProbs, probs [T, K].

#include "moejit_device/core/probability.cuh"
#include "moejit_device/map/splits.cuh"
#include "moejit_device/stage/contract.cuh"

namespace moejit::device {

// What a kernel before has routed.
struct RoutedBefore {
  static constexpr bool kMayPad = true;  // whether groups may have pad rows

  MOEJIT_DEVICE static int32_t row_of(const RowChainParams& params, int64_t choice) {
    return ptx::load(ptx::global(params.row_map) + choice);
  }
  template <int32_t kGroups>
  MOEJIT_DEVICE static Splits<kGroups> groups(const RowChainParams& params) {
    return {ptx::global(params.counts), ptx::global(params.offs)};
  }
  // Returns how many rows all groups have.
  template <int32_t kGroups>
  MOEJIT_DEVICE static int32_t rows(const RowChainParams& params) {
    return groups<kGroups>(params).rows();
  }
};

// Routed tells what was routed.
template <int32_t kColumns, int32_t kTopK, bool kMovesProbs, typename Prob,
          typename Routed = RoutedBefore>
struct Destinations {
  // Lane l of a segment knows destination l of a batch of eight.
  struct Batch {
    int32_t row;  // -1: none
    float prob;
  };

  // Loads the batch that begins with choice `first_k`.
  MOEJIT_DEVICE static Batch fetch(const RowChainParams& params,
                                   const SegmentPosition<kColumns>& at, int32_t first_k) {
    const int32_t k = first_k + segment_lane();
    if (!at.is_real() || k >= kTopK) return {.row = -1, .prob = 0.0f};
    const int64_t i = at.row * kTopK + k;
    return {.row = Routed::row_of(params, i), .prob = prob_of(params, i)};
  }
  // Both load the first batch in two steps: what does not depend on the routes, and the rest.
  MOEJIT_DEVICE static Batch fetch_ahead(const RowChainParams& params,
                                         const SegmentPosition<kColumns>& at) {
    const int32_t k = segment_lane();
    if (!at.is_real() || k >= kTopK) return {.row = -1, .prob = 0.0f};
    return {.row = -1, .prob = prob_of(params, at.row * kTopK + k)};
  }
  MOEJIT_DEVICE static void find(const RowChainParams& params, const SegmentPosition<kColumns>& at,
                                 Batch& first) {
    const int32_t k = segment_lane();
    if (at.is_real() && k < kTopK) first.row = Routed::row_of(params, at.row * kTopK + k);
  }

  // On one rank of several many tokens have no row. Where a segment may have more destinations than
  // the first batch tells, it is taken to have one.
  MOEJIT_DEVICE static bool exist(const Batch& first) {
    if constexpr (kTopK > kSegmentLanes) return true;
    return (ballot_of_segment(first.row >= 0) & ((1u << kSegmentLanes) - 1)) != 0;
  }

  // Returns bit l of this segment's lane l. Bits from 8 on are of other segments.
  MOEJIT_DEVICE static uint32_t ballot_of_segment(bool value) {
    return ptx::ballot(value) >> (segment_of_lane() * kSegmentLanes);
  }

 private:
  MOEJIT_DEVICE static float prob_of(const RowChainParams& params, int64_t choice) {
    if constexpr (!kMovesProbs) return 1.0f;
    return load_prob(ptx::global(static_cast<const Prob*>(params.probs)) + choice);
  }
};

}  // namespace moejit::device
