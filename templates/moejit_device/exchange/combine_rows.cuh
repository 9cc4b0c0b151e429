// SPDX-License-Identifier: Apache-2.0
#pragma once

// The whole combine in one kernel: a rank adds the rows that its experts made of a token, in fp32
// from 0 and in descending order of rows, and rounds the sum to bf16. Sums of other ranks' tokens
// go home as they are made. Home adds the ranks' sums of a token in ascending order, in fp32 from
// 0, and rounds once to bf16; its own sum is never stored.
//
// Chunks of other ranks' tokens are sent, chunks of own tokens received: unit_walk.cuh.
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
//   using Kernel = CombineRows<Exchange, kColumns, kHasDprobs, float, kSenderSms, kThreads>;

#include "moejit_device/exchange/result_rows.cuh"
#include "moejit_device/exchange/unit_walk.cuh"
#include "moejit_device/stage/load_combined.cuh"

namespace moejit::device {

template <typename Exchange, int32_t kColumns, bool kHasDprobs, typename Prob, int32_t kSenderSms,
          int32_t kThreads_>
struct CombineRows {
  static_assert(Exchange::kRanks > 1, "one rank has nobody to exchange with");

  static constexpr int32_t kThreads = kThreads_;
  using Walk = UnitWalk<kSenderSms>;
  static constexpr int32_t kSharedBytes = Walk::kSharedBytes;
  static constexpr int32_t kTopK = Exchange::kTopK, kRanks = Exchange::kRanks;
  using Load = LoadCombinedRows<kColumns, kTopK>;
  using Position = SegmentPosition<kColumns>;
  static constexpr int32_t kCtasPerSm = smaller(Load::kThreadsPerSm / kThreads, int32_t{32});

  MOEJIT_DEVICE static void run(const CombineRowsParams& params) {
    const ExchangeGroup group = ExchangeGroup::after_arrival(params.group);
    const Walk walk(params.tickets);
    walk.send(int64_t{kRanks - 1} * Exchange::kChunks, [&](int64_t unit) {
      // The ranks in turn, from the next one on, so that they do not all write to the same.
      const auto place = static_cast<int32_t>(unit % (kRanks - 1));
      send_chunk(params, group, (group.rank() + 1 + place) % kRanks, unit / (kRanks - 1));
    });
    walk.receive(Exchange::kChunks, [&](int64_t chunk) { add_chunk(params, group, chunk); });
    walk.end([] {});
  }

 private:
  // Returns the sum of what this rank's experts made of the token of a slot.
  MOEJIT_DEVICE static Bf16Segment sum_of_rows(const CombineRowsParams& params, Position at,
                                               int64_t slots) {
    at.row += slots;
    const RowChainParams rows{.input = params.expert_rows, .row_map = params.row_map};
    return pack_bf16(Load::unpack(Load::fetch(rows, at)));
  }

  MOEJIT_DEVICE static void send_chunk(const CombineRowsParams& params, const ExchangeGroup& group,
                                       int32_t home, int64_t chunk) {
    const int64_t first = chunk * Exchange::kChunkTokens;
    const int32_t count = Exchange::tokens_in_chunk(chunk, Exchange::kMaxTokens);
    const int64_t slots = home * int64_t{Exchange::kMaxTokens};
    for_each_segment<kColumns, kThreads, 1>(first, count, [&](const Position(&at)[1]) {
      const bool is_here =
          has_expert<kTopK>(ptx::global(params.slot_ids), slots + at[0].row, at[0].is_real());
      Position to = at[0];
      to.row += group.rank() * int64_t{Exchange::kMaxTokens};
      const Bf16Segment sum = sum_of_rows(params, at[0], slots);
      if (!is_here) to.kind = RowKind::kAbsent;
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
    await_results<Exchange>(params.result_flags[group.rank()], group, chunk);
    for_each_segment<kColumns, kThreads, 1>(first, count, [&](const Position(&at)[1]) {
      const uint32_t ranks = Exchange::ranks_of(params.topk_ids, at[0].row, at[0].is_real());
      const Bf16Segment own = sum_of_rows(params, at[0], slots);
      store_sum<Exchange>(params, params.results[group.rank()], group.rank(), at[0], ranks, own);
    });
    if constexpr (kHasDprobs) {
      take_dprobs<Exchange, kThreads, Prob>(params, params.dprobs_home[group.rank()], group.rank(),
                                            first, count);
    }
  }
};

}  // namespace moejit::device
