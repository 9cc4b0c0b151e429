// SPDX-License-Identifier: Apache-2.0
#pragma once

// Combine: results go home and are added there. A rank has added what its own experts made of a
// token, in bf16, at the token's slot. It sends that row to the token's rank; home adds the rows of
// the ranks in ascending order, its own among them, in fp32 from 0, and rounds once to bf16.
//
// In a backward call the gradients of the probabilities go along: each belongs to one expert, so
// that home puts every one where it belongs and adds nothing. The status word goes along too.

#include "moejit_device/exchange/result_rows.cuh"

namespace moejit::device {

// Sends results of the tokens of other ranks home, a chunk of a rank at a time. No CTA waits.
template <typename Exchange, int32_t kColumns, bool kHasDprobs, int32_t kThreads_,
          int32_t kSegments>
struct CombinePush {
  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kSharedBytes = 0;
  static constexpr int32_t kCtasPerSm = smaller(1024 / kThreads, int32_t{32});
  static constexpr int32_t kTopK = Exchange::kTopK;
  using Position = SegmentPosition<kColumns>;

  MOEJIT_DEVICE static void run(const CombinePushParams& params) {
    const ExchangeGroup group = ExchangeGroup::after_arrival(params.group);
    constexpr int32_t kOthers = larger(Exchange::kRanks - 1, int32_t{1});
    // The ranks in turn, from the next one on, so that they do not all write to the same.
    for (int64_t unit = ptx::cta_index(); unit < int64_t{kOthers} * Exchange::kChunks;
         unit += ptx::cta_count()) {
      const int64_t chunk = unit / kOthers;
      const auto distance = 1 + static_cast<int32_t>(unit - chunk * kOthers);
      const int32_t home = (group.rank() + distance) % Exchange::kRanks;
      send_chunk(params, group, home, chunk * Exchange::kChunkTokens,
                 Exchange::tokens_in_chunk(chunk, Exchange::kMaxTokens));
      raise_results<Exchange>(params.result_flags[home], group, chunk);
    }
  }

 private:
  MOEJIT_DEVICE static void send_chunk(const CombinePushParams& params, const ExchangeGroup& group,
                                       int32_t home, int64_t first, int32_t count) {
    const int64_t slots = home * int64_t{Exchange::kMaxTokens};
    for_each_segment<kColumns, kThreads, kSegments>(
        first, count,
        [&](const Position(&at)[kSegments]) { send(params, group, home, slots, at); });
    if constexpr (kHasDprobs) {
      send_dprobs<kThreads, kTopK>(params, home, slots, first, count);
    }
  }

  MOEJIT_DEVICE static void send(const CombinePushParams& params, const ExchangeGroup& group,
                                 int32_t home, int64_t slots, const Position (&at)[kSegments]) {
    const auto results = ptx::global(static_cast<const Bf16*>(params.slot_results));
    Bf16Segment segment[kSegments];
    bool is_here[kSegments];
#pragma unroll
    for (int32_t s = 0; s < kSegments; ++s) {
      is_here[s] =
          has_expert<kTopK>(ptx::global(params.slot_ids), slots + at[s].row, at[s].is_real());
    }
#pragma unroll
    for (int32_t s = 0; s < kSegments; ++s) {
      segment[s] = fetch_runs(results, at[s], slots + at[s].row, is_here[s]);
    }
#pragma unroll
    for (int32_t s = 0; s < kSegments; ++s) {
      Position to = at[s];
      to.row += group.rank() * int64_t{Exchange::kMaxTokens};
      if (!is_here[s]) to.kind = RowKind::kAbsent;
      store_runs(ptx::global(static_cast<Bf16*>(params.results[home])), to, segment[s]);
    }
  }
};

// Adds the results of a token, a chunk at a time, when they have come.
template <typename Exchange, int32_t kColumns, bool kHasDprobs, typename Prob, int32_t kThreads_>
struct CombineSum {
  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kSharedBytes = 0;
  static constexpr int32_t kCtasPerSm = smaller(1024 / kThreads, int32_t{32});
  using Position = SegmentPosition<kColumns>;

  MOEJIT_DEVICE static void run(const CombineSumParams& params) {
    const ExchangeGroup group = ExchangeGroup::after_arrival(params.group);
    for (int64_t chunk = ptx::cta_index(); chunk < Exchange::kChunks; chunk += ptx::cta_count()) {
      await_results<Exchange>(params.result_flags, group, chunk);
      const int64_t first = chunk * Exchange::kChunkTokens;
      const int32_t count = Exchange::tokens_in_chunk(chunk, params.tokens);
      for_each_segment<kColumns, kThreads, 1>(
          first, count, [&](const Position(&at)[1]) { add(params, group, at[0]); });
      if constexpr (kHasDprobs) {
        take_dprobs<Exchange, kThreads, Prob>(params, params.dprobs_home, group.rank(), first,
                                              count);
      }
    }
  }

 private:
  MOEJIT_DEVICE static void add(const CombineSumParams& params, const ExchangeGroup& group,
                                const Position& at) {
    const uint32_t ranks = Exchange::ranks_of(params.topk_ids, at.row, at.is_real());
    const Bf16Segment own = fetch_runs(ptx::global(static_cast<const Bf16*>(params.slot_results)),
                                       at, group.rank() * int64_t{Exchange::kMaxTokens} + at.row,
                                       ((ranks >> group.rank()) & 1u) != 0);
    store_sum<Exchange>(params, params.results, group.rank(), at, ranks, own);
  }
};

}  // namespace moejit::device
