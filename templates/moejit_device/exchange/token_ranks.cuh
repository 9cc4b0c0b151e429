// SPDX-License-Identifier: Apache-2.0
#pragma once

// The ranks that have experts of a token.

#include "moejit_device/core/segment.cuh"

namespace moejit::device {

// Returns the or of the eight lanes' bits, in all of them.
MOEJIT_DEVICE uint32_t or_of_segment(uint32_t bits) {
#pragma unroll
  for (int32_t mask = kSegmentLanes / 2; mask > 0; mask /= 2) {
    bits |= ptx::shuffle_xor(bits, mask);
  }
  return bits;
}

// Returns bit r for each rank r that has an expert of token `token`, in all lanes of a segment.
// Every lane of a warp calls; 0 if `exists` is false.
template <int32_t kRanks, int32_t kRankExperts, int32_t kTopK, typename Id>
MOEJIT_DEVICE uint32_t ranks_of_token(ptx::GlobalPtr<const Id> topk_ids, int64_t token,
                                      bool exists) {
  uint32_t ranks = 0;
#pragma unroll
  for (int32_t first = 0; first < kTopK; first += kSegmentLanes) {
    const int32_t k = first + segment_lane();
    if (exists && k < kTopK) {
      const Id id = ptx::load(topk_ids + (token * kTopK + k));
      if (id >= 0 && id < kRanks * kRankExperts) {
        ranks |= 1u << (static_cast<int32_t>(id) / kRankExperts);
      }
    }
  }
  return or_of_segment(ranks);
}

// Returns whether token `token` has a choice among ids [tokens, K] that are no -1, in all lanes of
// a segment. Every lane of a warp calls; false if `exists` is false.
template <int32_t kTopK>
MOEJIT_DEVICE bool has_expert(ptx::GlobalPtr<const int32_t> ids, int64_t token, bool exists) {
  uint32_t found = 0;
#pragma unroll
  for (int32_t first = 0; first < kTopK; first += kSegmentLanes) {
    const int32_t k = first + segment_lane();
    if (!exists || k >= kTopK) continue;
    found |= ptx::load(ids + (token * kTopK + k)) >= 0 ? 1u : 0u;
  }
  return or_of_segment(found) != 0;
}

}  // namespace moejit::device
