// SPDX-License-Identifier: Apache-2.0
#pragma once

// The whole dispatch in one kernel: each token's row goes once to every rank that has one of its
// experts, into the slot of the token there, and each row that is in a slot goes to its permuted
// rows, with zeros in the pad rows of the experts' groups. Own rows go there while they are sent.
// bf16 rows are quantized on the way. With StoreRowsAndPermuted the rows of all slots are kept too:
// the next exchange overwrites the slots.
//
// The routing of all slots is known before: row_map says where a choice's row goes. Chunks of own
// tokens are sent, chunks of other ranks' tokens received: unit_order.cuh.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/exchange/dispatch_permute.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kColumns = 7168;
//   ...
//   using Exchange = TokenExchange<kRanks, kRankExperts, kTopK, kMaxTokens, kChunkTokens>;
//   using Store = StorePermuted<kColumns, kTopK, kRankExperts, kMovesProbs, E4m3>;
//   using Kernel = DispatchPermute<LoadRows<kColumns>, Quantize1x128<kEpsilonBits>, Store,
//                                  Exchange, kThreads, kSegmentsInFlight>;

#include "moejit_device/exchange/dispatch_rows.cuh"
#include "moejit_device/exchange/unit_order.cuh"
#include "moejit_device/stage/store_permuted.cuh"

namespace moejit::device {

template <typename Load, typename Quantize, typename Store, typename Exchange, int32_t kThreads_,
          int32_t kSegments = Load::kSegmentsInFlight>
struct DispatchPermute {
  static_assert(Quantize::kSegmentsPerScale == 1, "segments have scales of their own");
  static_assert(Exchange::kRanks > 1, "one rank has nobody to exchange with");

  static constexpr int32_t kColumns = Load::kColumns, kRanks = Exchange::kRanks;
  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kSharedBytes = 0;
  static constexpr int32_t kCtasPerSm = smaller(Load::kThreadsPerSm / kThreads, int32_t{32});
  using Position = SegmentPosition<kColumns>;
  using Stored = decltype(Quantize::apply(Load::unpack(detail::made<typename Load::Fetched>())));
  using Order = UnitOrder<1, kRanks - 1, Exchange::kChunks>;

  MOEJIT_DEVICE static void run(const DispatchPermuteParams& params) {
    const ExchangeGroup group = ExchangeGroup::before_arrival(params.group);
    group.check_tokens(params.saved_tokens, params.tokens);
    const RowChainParams rows{.input = params.input,
                              .input_scale_inv = params.input_scale_inv,
                              .probs = params.slot_probs,
                              .row_map = params.row_map,
                              .counts = params.counts,
                              .offs = params.offs,
                              .output = params.output,
                              .output_scale_inv = params.output_scale_inv,
                              .output_probs = params.output_probs,
                              .row_tokens = params.row_tokens,
                              .kept_output = params.kept_output,
                              .kept_scale_inv = params.kept_scale_inv};
    const Order order(ptx::cta_count());
    for (int64_t i = ptx::cta_index(); i < Order::kUnits; i += ptx::cta_count()) {
      const ExchangeUnit unit = order.unit(i);
      if (unit.sends) {
        send_chunk(params, group, rows, unit.chunk);
      } else {
        receive_chunk(params, group, rows, (group.rank() + 1 + unit.place) % kRanks, unit.chunk);
      }
    }
    Store::finish(rows);
  }

 private:
  // Returns the position, absent if no expert of this rank wants its row. All lanes call.
  MOEJIT_DEVICE static Position wanted(Position at, const typename Store::Fetched& where) {
    if (!Store::is_permuted(where)) at.kind = RowKind::kAbsent;
    return at;
  }

  MOEJIT_DEVICE static void send_chunk(const DispatchPermuteParams& params,
                                       const ExchangeGroup& group, const RowChainParams& rows,
                                       int64_t chunk) {
    for_each_segment<kColumns, kThreads, kSegments>(
        chunk * Exchange::kChunkTokens, Exchange::tokens_in_chunk(chunk, params.tokens),
        [&](const Position(&at)[kSegments]) { send(params, group, rows, at); });
    group.raise_everywhere<kRanks>(params.row_flags,
                                   group.rank() * int64_t{Exchange::kChunks} + chunk);
  }

  MOEJIT_DEVICE static void send(const DispatchPermuteParams& params, const ExchangeGroup& group,
                                 const RowChainParams& rows, const Position (&at)[kSegments]) {
    typename Load::Fetched fetched[kSegments];
    typename Store::Fetched where[kSegments];
    uint32_t ranks[kSegments];
    Position slot[kSegments];
#pragma unroll
    for (int32_t s = 0; s < kSegments; ++s) {
      slot[s] = at[s];
      slot[s].row += group.rank() * int64_t{Exchange::kMaxTokens};
      fetched[s] = Load::fetch(rows, at[s]);
      where[s] = Store::fetch(rows, slot[s]);
    }
#pragma unroll
    for (int32_t s = 0; s < kSegments; ++s) {
      ranks[s] = Exchange::ranks_of(params.topk_ids, at[s].row, at[s].is_real());
    }
#pragma unroll
    for (int32_t s = 0; s < kSegments; ++s) {
      const Stored stored = Quantize::apply(Load::unpack(fetched[s]));
#pragma unroll
      for (int32_t to = 0; to < kRanks; ++to) {
        Position there = slot[s];
        if (((ranks[s] >> to) & 1u) == 0) there.kind = RowKind::kAbsent;
        store_slot(params.slots[to], params.slot_scales[to], there, stored);
      }
      Store::store(rows, wanted(slot[s], where[s]), where[s], stored);
    }
  }

  MOEJIT_DEVICE static void receive_chunk(const DispatchPermuteParams& params,
                                          const ExchangeGroup& group, const RowChainParams& rows,
                                          int32_t source, int64_t chunk) {
    const int32_t own = group.rank();
    // Each thread waits for itself, so that what came is visible to it.
    group.wait(ptx::global(static_cast<const uint32_t*>(params.row_flags[own])) +
                   (source * int64_t{Exchange::kChunks} + chunk),
               source);
    ptx::sync_warp();
    const int64_t slots = source * int64_t{Exchange::kMaxTokens};
    for_each_segment<kColumns, kThreads, kSegments>(
        slots + chunk * Exchange::kChunkTokens,
        Exchange::tokens_in_chunk(chunk, Exchange::kMaxTokens),
        [&](const Position(&at)[kSegments]) {
          typename Store::Fetched where[kSegments];
          Stored arrived[kSegments];
          Position to[kSegments];
#pragma unroll
          for (int32_t s = 0; s < kSegments; ++s) where[s] = Store::fetch(rows, at[s]);
#pragma unroll
          for (int32_t s = 0; s < kSegments; ++s) {
            to[s] = wanted(at[s], where[s]);
            fetch_slot(params.slots[own], params.slot_scales[own], to[s], to[s].is_real(),
                       arrived[s]);
          }
#pragma unroll
          for (int32_t s = 0; s < kSegments; ++s) Store::store(rows, to[s], where[s], arrived[s]);
        });
  }
};

}  // namespace moejit::device
