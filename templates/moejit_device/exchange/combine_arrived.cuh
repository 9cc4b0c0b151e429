// SPDX-License-Identifier: Apache-2.0
#pragma once

// The second half of combine where a transport moves the bytes: home adds what the experts of all
// ranks made of each of its tokens, after the transport has brought it here. The first half is a
// kernel of each rank's experts, for which the slots of all ranks are tokens.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/exchange/combine_arrived.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kColumns = 7168;
//   ...
//   using Exchange = TokenExchange<kRanks, kRankExperts, kTopK, kMaxTokens, kChunkTokens>;
//   using Kernel =
//       CombineArrived<ArrivedSums<Exchange, kColumns>, Exchange, kHasDprobs, float, kThreads>;

#include "moejit_device/core/probability.cuh"
#include "moejit_device/core/segment_sum.cuh"
#include "moejit_device/exchange/chunk_walk.cuh"
#include "moejit_device/exchange/token_ranks.cuh"
#include "moejit_device/map/descending_rows.cuh"
#include "moejit_device/params/collective_params.h"

namespace moejit::device {

// Adds the sums of the ranks in ascending order, in fp32 from 0. A rank without experts of a token
// has zeros for it, of which the sum takes no notice.
template <typename Exchange, int32_t kColumns_>
struct ArrivedSums {
  static constexpr int32_t kColumns = kColumns_, kRanks = Exchange::kRanks;
  static constexpr int32_t kThreadsPerSm = kRanks <= 4 ? 1024 : 768;
  static constexpr int32_t kRowsInFlight = smaller(kRanks, int32_t{4});

  MOEJIT_DEVICE static ValueSegment sum(const CombineArrivedParams& params,
                                        const SegmentPosition<kColumns>& at) {
    const auto results = ptx::global(static_cast<const Bf16*>(params.results));
    ValueSegment sum = {};
#pragma unroll
    for (int32_t from = 0; from < kRanks; from += kRowsInFlight) {
      Bf16Segment segment[kRowsInFlight];
#pragma unroll
      for (int32_t i = 0; i < kRowsInFlight; ++i) {
        const int64_t row = (from + i) * int64_t{Exchange::kMaxTokens} + at.row;
        segment[i] = fetch_runs(results, at, row, at.is_real() && from + i < kRanks);
      }
#pragma unroll
      for (int32_t i = 0; i < kRowsInFlight; ++i) {
        add_values(sum, unpack_bf16(segment[i]), from + i < kRanks);
      }
    }
    return sum;
  }
};

// Adds the rows of a token's choices in fp32 from 0, in the order of one rank with all experts.
template <typename Exchange, int32_t kColumns_>
struct ArrivedRows {
  static constexpr int32_t kColumns = kColumns_, kThreadsPerSm = 768;
  static constexpr int32_t kTopK = Exchange::kTopK;
  static constexpr int32_t kRowsInFlight = smaller(kTopK, int32_t{4});

  MOEJIT_DEVICE static ValueSegment sum(const CombineArrivedParams& params,
                                        const SegmentPosition<kColumns>& at) {
    using Id = typename Exchange::Id;
    const auto ids = ptx::global(static_cast<const Id*>(params.topk_ids)) + at.row * kTopK;
    SortedRows<kTopK> keys(
        [&](int32_t k) { return at.is_real() ? Exchange::key_of(ids, k) : int32_t{-1}; });
    const auto results = ptx::global(static_cast<const Bf16*>(params.results));
    ValueSegment sum = {};
#pragma unroll
    for (int32_t k = 0; k < kTopK; k += kRowsInFlight) {
      Bf16Segment segment[kRowsInFlight];
      bool exists[kRowsInFlight];
#pragma unroll
      for (int32_t i = 0; i < kRowsInFlight; ++i) {
        const int32_t key = k + i < kTopK ? keys.next() : -1;
        exists[i] = key >= 0;
        segment[i] = fetch_runs(results, at, exists[i] ? place_of(ids, key, at.row) : 0, exists[i]);
      }
#pragma unroll
      for (int32_t i = 0; i < kRowsInFlight; ++i) {
        add_values(sum, unpack_bf16(segment[i]), exists[i]);
      }
    }
    return sum;
  }

 private:
  // Returns which of the results is the row of a choice: it came from the rank of its expert.
  MOEJIT_DEVICE static int64_t place_of(ptx::GlobalPtr<const typename Exchange::Id> ids,
                                        int32_t key, int64_t token) {
    const int64_t place = Exchange::rank_of(ids, key) * int64_t{Exchange::kMaxTokens} + token;
    return place * kTopK + Exchange::choice_of(key);
  }
};

template <typename Arrived, typename Exchange, bool kHasDprobs, typename Prob, int32_t kThreads_>
struct CombineArrived {
  static constexpr int32_t kColumns = Arrived::kColumns, kTopK = Exchange::kTopK;
  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kSharedBytes = 0;
  static constexpr int32_t kCtasPerSm = smaller(Arrived::kThreadsPerSm / kThreads, int32_t{32});
  using Position = SegmentPosition<kColumns>;

  MOEJIT_DEVICE static void run(const CombineArrivedParams& params) {
    take_status(params);
    for (int64_t chunk = ptx::cta_index(); chunk < Exchange::kChunks; chunk += ptx::cta_count()) {
      const int64_t first = chunk * Exchange::kChunkTokens;
      const int32_t count = Exchange::tokens_in_chunk(chunk, params.tokens);
      for_each_segment<kColumns, kThreads, 1>(first, count, [&](const Position(&at)[1]) {
        store_runs(ptx::global(static_cast<Bf16*>(params.output)), at[0],
                   pack_bf16(Arrived::sum(params, at[0])));
      });
      if constexpr (kHasDprobs) take_dprobs(params, first, count);
    }
  }

 private:
  // All ranks end a call with the same bits: what the experts of one rank had to tell is true of
  // results that all of them get.
  MOEJIT_DEVICE static void take_status(const CombineArrivedParams& params) {
    if (ptx::cta_index() != 0 || ptx::thread_index() >= Exchange::kRanks) return;
    const uint32_t bits = ptx::load(ptx::global(params.status_of_ranks) + ptx::thread_index());
    if (bits != 0) ptx::atomic_or(ptx::global(params.status), bits);
  }

  // Each gradient of a probability belongs to one expert, whose rank sent it.
  MOEJIT_DEVICE static void take_dprobs(const CombineArrivedParams& params, int64_t first,
                                        int32_t count) {
    using Id = typename Exchange::Id;
    const auto ids = ptx::global(static_cast<const Id*>(params.topk_ids));
    for (int32_t i = ptx::thread_index(); i < count * kTopK; i += kThreads) {
      const int64_t choice = first * kTopK + i;
      const Id id = ptx::load(ids + choice);
      const bool is_expert = id >= 0 && id < Exchange::kRanks * Exchange::kRankExperts;
      const int32_t owner = is_expert ? static_cast<int32_t>(id) / Exchange::kRankExperts : 0;
      const int64_t place = owner * int64_t{Exchange::kMaxTokens} * kTopK + choice;
      const float dprob = is_expert ? ptx::load(ptx::global(params.dprobs_of_ranks) + place) : 0.0f;
      store_prob(ptx::global(static_cast<Prob*>(params.dprobs)) + choice, dprob);
    }
  }
};

}  // namespace moejit::device
