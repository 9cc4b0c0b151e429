// SPDX-License-Identifier: Apache-2.0
#pragma once

// The combine whose results have the bits of one rank with all tokens. Every row that an expert
// made goes home as it is. Home adds a token's rows in fp32 from 0, in the order of that one rank,
// and rounds once to bf16.
//
// That rank has the rows in the order of experts, and adds the rows of a token in descending order:
// by expert, and where a token has an expert twice, by choice. A row that its rank had no place for
// comes as zeros, of which a sum takes no notice.
//
// Chunks of other ranks' tokens are sent, chunks of own tokens received: unit_walk.cuh. K times as
// many rows as with CombineRows cross the wire at most, and home reads as many.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/exchange/combine_each_row.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kColumns = 7168;
//   ...
//   using Exchange = TokenExchange<kRanks, kRankExperts, kTopK, kMaxTokens, kChunkTokens>;
//   using Kernel = CombineEachRow<Exchange, kColumns, kHasDprobs, float, kThreads>;

#include "moejit_device/core/segment_sum.cuh"
#include "moejit_device/exchange/result_rows.cuh"
#include "moejit_device/exchange/unit_walk.cuh"
#include "moejit_device/map/descending_rows.cuh"

namespace moejit::device {

template <typename Exchange, int32_t kColumns, bool kHasDprobs, typename Prob, typename Sms,
          int32_t kThreads_>
struct CombineEachRow {
  static_assert(Exchange::kRanks > 1, "one rank has nobody to exchange with");

  static constexpr int32_t kThreads = kThreads_;
  using Walk = UnitWalk<Sms>;
  static constexpr int32_t kSharedBytes = Walk::kSharedBytes;
  static constexpr int32_t kTopK = Exchange::kTopK, kRanks = Exchange::kRanks;
  static constexpr int32_t kRowsInFlight = smaller(kTopK, int32_t{4});
  using Position = SegmentPosition<kColumns>;
  static constexpr int32_t kCtasPerSm = smaller(768 / kThreads, int32_t{32});

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
      const auto place = static_cast<int32_t>(unit % (kRanks - 1));
      send_chunk(params, group, (group.rank() + 1 + place) % kRanks, unit / (kRanks - 1));
    });
    walk.receive(Exchange::kChunks, [&](int64_t chunk) { add_chunk(params, group, chunk); });
  }

  // Sends the rows of a chunk of rank `home`. A row goes to the position of its choice, [T_max, K].
  MOEJIT_DEVICE static void send_chunk(const CombineRowsParams& params, const ExchangeGroup& group,
                                       int32_t home, int64_t chunk) {
    const int64_t first = chunk * Exchange::kChunkTokens;
    const int32_t count = Exchange::tokens_in_chunk(chunk, Exchange::kMaxTokens);
    const int64_t slots = home * int64_t{Exchange::kMaxTokens};
    for_each_segment<kColumns, kThreads, 1>(
        first * kTopK, count * kTopK, [&](const Position(&at)[1]) {
          const int64_t choice = slots * kTopK + at[0].row;
          Position to = at[0];
          if (!at[0].is_real() || ptx::load(ptx::global(params.slot_ids) + choice) < 0) {
            to.kind = RowKind::kAbsent;
          }
          store_runs(ptx::global(static_cast<Bf16*>(params.results[home])), to,
                     own_row(params, at[0], choice, to.exists()));
        });
    if constexpr (kHasDprobs) send_dprobs<kThreads, kTopK>(params, home, slots, first, count);
    raise_results<Exchange>(params.result_flags[home], group, chunk);
  }

  // Returns the row that an expert of this rank made for a choice [S, K]; zeros if it has none.
  MOEJIT_DEVICE static Bf16Segment own_row(const CombineRowsParams& params, const Position& at,
                                           int64_t choice, bool exists) {
    const int32_t row = exists ? ptx::load(ptx::global(params.row_map) + choice) : -1;
    return fetch_runs(ptx::global(static_cast<const Bf16*>(params.expert_rows)), at,
                      larger(row, int32_t{0}), row >= 0);
  }

  MOEJIT_DEVICE static void add_chunk(const CombineRowsParams& params, const ExchangeGroup& group,
                                      int64_t chunk) {
    const int64_t first = chunk * Exchange::kChunkTokens;
    const int32_t count = Exchange::tokens_in_chunk(chunk, params.tokens);
    await_results<Exchange>(params.result_flags[group.rank()], group, chunk,
                            ptx::warp_index() == 0);
    for_each_segment<kColumns, kThreads, 1>(
        first, count, [&](const Position(&at)[1]) { add_rows(params, group, at[0]); });
    if constexpr (kHasDprobs) {
      take_dprobs<Exchange, kThreads, Prob>(params, params.dprobs_home[group.rank()], group.rank(),
                                            first, count);
    }
  }

  // Stores the sum of a token's rows.
  MOEJIT_DEVICE static void add_rows(const CombineRowsParams& params, const ExchangeGroup& group,
                                     const Position& at) {
    using Id = typename Exchange::Id;
    const auto ids = ptx::global(static_cast<const Id*>(params.topk_ids)) + at.row * kTopK;
    SortedRows<kTopK> keys(
        [&](int32_t k) { return at.is_real() ? Exchange::key_of(ids, k) : int32_t{-1}; });
    ValueSegment sum = {};
#pragma unroll
    for (int32_t k = 0; k < kTopK; k += kRowsInFlight) {
      Bf16Segment segment[kRowsInFlight];
      bool exists[kRowsInFlight];
#pragma unroll
      for (int32_t i = 0; i < kRowsInFlight; ++i) {
        const int32_t key = k + i < kTopK ? keys.next() : -1;
        exists[i] = key >= 0;
        segment[i] = row_of(params, group.rank(), at, ids, key);
      }
#pragma unroll
      for (int32_t i = 0; i < kRowsInFlight; ++i) {
        add_values(sum, unpack_bf16(segment[i]), exists[i]);
      }
    }
    store_runs(ptx::global(static_cast<Bf16*>(params.output)), at, pack_bf16(sum));
  }

  // Returns the row of a token's choice: from this rank's experts, or as it came.
  MOEJIT_DEVICE static Bf16Segment row_of(const CombineRowsParams& params, int32_t own,
                                          const Position& at,
                                          ptx::GlobalPtr<const typename Exchange::Id> ids,
                                          int32_t key) {
    const int64_t choice = at.row * kTopK + (key >= 0 ? Exchange::choice_of(key) : 0);
    const bool is_own = key >= 0 && Exchange::rank_of(ids, key) == own;
    if (is_own) {
      return own_row(params, at, own * int64_t{Exchange::kMaxTokens} * kTopK + choice, true);
    }
    return fetch_arrived_runs(ptx::global(static_cast<const Bf16*>(params.results[own])), at,
                              choice, key >= 0);
  }
};

}  // namespace moejit::device
