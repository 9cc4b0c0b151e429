// SPDX-License-Identifier: Apache-2.0
#pragma once

// The numbers of an exchange, and the ranks that have experts of a token.

#include "moejit_device/core/segment.cuh"
#include "moejit_device/params/exchange_params.h"

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

// The numbers of an exchange: R ranks with so many experts each, K choices of a token, T_max tokens
// of a rank, and how many neighboring tokens share a flag. The last kSharedChoices choices are
// shared experts of the token's rank.
template <int32_t kRanks_, int32_t kRankExperts_, int32_t kTopK_, int32_t kMaxTokens_,
          int32_t kChunkTokens_, typename Id_ = int32_t, int32_t kSharedChoices = 0>
struct TokenExchange {
  static_assert(kRanks_ > 0 && kRanks_ <= kMostRanks, "the records have a place for each rank");
  static constexpr int32_t kRanks = kRanks_, kRankExperts = kRankExperts_, kTopK = kTopK_;
  static constexpr int32_t kMaxTokens = kMaxTokens_, kChunkTokens = kChunkTokens_;
  static constexpr int32_t kChunks = ceil_div(kMaxTokens, kChunkTokens);
  using Id = Id_;

  // Returns how many tokens of `tokens` the chunk has.
  MOEJIT_DEVICE static int32_t tokens_in_chunk(int64_t chunk, int64_t tokens) {
    const int64_t left = tokens - chunk * kChunkTokens;
    return static_cast<int32_t>(larger(smaller(left, int64_t{kChunkTokens}), int64_t{0}));
  }
  MOEJIT_DEVICE static uint32_t ranks_of(const void* topk_ids, int64_t token, bool exists) {
    return ranks_of_token<kRanks, kRankExperts, kTopK, Id>(
        ptx::global(static_cast<const Id*>(topk_ids)), token, exists);
  }

  // Returns the key of a token's choice k: descending keys give the order in which one rank with
  // all experts adds the token's rows. That is by expert, the shared ones first, and where a token
  // has an expert twice, by choice. -1: the choice is no expert. `ids` are the token's.
  MOEJIT_DEVICE static int32_t key_of(ptx::GlobalPtr<const Id> ids, int32_t k) {
    const Id id = ptx::load(ids + k);
    if (id < 0 || id >= kRanks * kRankExperts) return -1;
    const bool is_shared = k >= kTopK - kSharedChoices;
    return (is_shared ? kRanks * kRankExperts : static_cast<int32_t>(id)) * kTopK + k;
  }
  MOEJIT_DEVICE static int32_t choice_of(int32_t key) { return key % kTopK; }
  // Returns the rank of the expert.
  MOEJIT_DEVICE static int32_t rank_of(ptx::GlobalPtr<const Id> ids, int32_t key) {
    if constexpr (kSharedChoices == 0) return key / kTopK / kRankExperts;
    return static_cast<int32_t>(ptx::load(ids + choice_of(key)) / kRankExperts);
  }
};

}  // namespace moejit::device
