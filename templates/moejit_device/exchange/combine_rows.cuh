// SPDX-License-Identifier: Apache-2.0
#pragma once

// The whole combine in one kernel: a rank adds the rows that its experts made of a token, in fp32
// from 0 and in descending order of rows, and rounds the sum to bf16. Sums of other ranks' tokens
// go home as they are made. Home adds the ranks' sums of a token in ascending order, in fp32 from
// 0, and rounds once to bf16; its own sum is never stored.
//
// Chunks of other ranks' tokens are sent, chunks of own tokens received: unit_walk.cuh. Rows of any
// length are added in registers; combine_through_shared.cuh is for those that fit in shared memory.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/exchange/combine_rows.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kColumns = 7168;
//   ...
//   using Exchange = TokenExchange<kRanks, kRankExperts, kTopK, kMaxTokens, kChunkTokens>;
//   using Kernel = CombineRows<Exchange, kColumns, kHasDprobs, float, Sms, kThreads>;

#include "moejit_device/exchange/listed_rows.cuh"
#include "moejit_device/exchange/result_rows.cuh"
#include "moejit_device/exchange/unit_walk.cuh"

namespace moejit::device {

template <typename Exchange, int32_t kColumns, bool kHasDprobs, typename Prob, typename Sms,
          int32_t kThreads_>
struct CombineRows {
  static_assert(Exchange::kRanks > 1, "one rank has nobody to exchange with");

  static constexpr int32_t kThreads = kThreads_;
  using Walk = UnitWalk<Sms>;
  static constexpr int32_t kTopK = Exchange::kTopK, kRanks = Exchange::kRanks;
  using Rows = ListedRows<kColumns, kTopK, Exchange::kChunkTokens, kThreads, Walk::kSharedBytes>;
  static constexpr int32_t kSharedBytes = Rows::kEnd;
  using Position = SegmentPosition<kColumns>;
  static constexpr int32_t kCtasPerSm = 1024 / kThreads;

  MOEJIT_DEVICE static void run(const CombineRowsParams& params) {
    const ExchangeGroup group = ExchangeGroup::after_arrival(params.group);
    const Walk walk(params.tickets);
    if (walk.works()) move(params, group, walk);
    walk.end([] {});
  }

 private:
  MOEJIT_DEVICE static void move(const CombineRowsParams& params, const ExchangeGroup& group,
                                 const Walk& walk) {
    walk.send(int64_t{kRanks - 1} * Exchange::kChunks, [&](int64_t unit) {
      // The ranks in turn, from the next one on, so that they do not all write to the same.
      const auto place = static_cast<int32_t>(unit % (kRanks - 1));
      send_chunk(params, group, (group.rank() + 1 + place) % kRanks, unit / (kRanks - 1));
    });
    walk.receive(Exchange::kChunks, [&](int64_t chunk) { add_chunk(params, group, chunk); });
  }

  MOEJIT_DEVICE static void send_chunk(const CombineRowsParams& params, const ExchangeGroup& group,
                                       int32_t home, int64_t chunk) {
    const int64_t first = chunk * Exchange::kChunkTokens;
    const int32_t count = Exchange::tokens_in_chunk(chunk, Exchange::kMaxTokens);
    const int64_t slots = home * int64_t{Exchange::kMaxTokens};
    Rows::list(params.row_map, params.slot_ids, slots + first, count);
    for_each_segment<kColumns, kThreads, 1>(0, count, [&](const Position(&at)[1]) {
      const Bf16Segment sum = Rows::sum(params.expert_rows, at[0]);
      Position to = at[0];
      to.row += group.rank() * int64_t{Exchange::kMaxTokens} + first;
      if (!Rows::has_expert(at[0])) to.kind = RowKind::kAbsent;
      store_runs(ptx::global(static_cast<Bf16*>(params.results[home])), to, sum);
    });
    if constexpr (kHasDprobs) {
      send_dprobs<kThreads, kTopK>(params, home, slots, first, count);
    }
    raise_results<Exchange>(params.result_flags[home], group, chunk);
  }

  MOEJIT_DEVICE static void add_chunk(const CombineRowsParams& params, const ExchangeGroup& group,
                                      int64_t chunk) {
    const int64_t first = chunk * Exchange::kChunkTokens;
    const int32_t count = Exchange::tokens_in_chunk(chunk, params.tokens);
    const int64_t slots = group.rank() * int64_t{Exchange::kMaxTokens};
    Rows::list(params.row_map, params.slot_ids, slots + first, count);
    await_results<Exchange>(params.result_flags[group.rank()], group, chunk,
                            ptx::warp_index() == 0);
    for_each_segment<kColumns, kThreads, 1>(0, count, [&](const Position(&at)[1]) {
      Position token = at[0];
      token.row += first;
      const uint32_t ranks = Exchange::ranks_of(params.topk_ids, token.row, token.is_real());
      const Bf16Segment own = Rows::sum(params.expert_rows, at[0]);
      store_sum<Exchange>(params, params.results[group.rank()], group.rank(), token, ranks, own);
    });
    if constexpr (kHasDprobs) {
      take_dprobs<Exchange, kThreads, Prob>(params, params.dprobs_home[group.rank()], group.rank(),
                                            first, count);
    }
  }
};

}  // namespace moejit::device
