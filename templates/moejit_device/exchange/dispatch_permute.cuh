// SPDX-License-Identifier: Apache-2.0
#pragma once

// Dispatch of rows and their permute in one kernel: each token's row goes once to every other rank
// that has one of its experts, into the slot of the token there, and each row that is in a slot
// goes to its permuted rows, with zeros in the pad rows of the experts' groups. Own rows go to
// their permuted rows as they are sent. Own rows of the first kSlotChunks chunks go through slots
// too, so that they can be sent before the routing is known, or by threads. bf16 rows are quantized
// on the way. With StoreRowsAndPermuted the rows of all slots are kept too: the next exchange
// overwrites the slots.
//
// The routing of all slots is known before: row_map says where a choice's row goes. Chunks of own
// tokens are sent, chunks of other ranks' tokens received: unit_walk.cuh. At the end all rows have
// come, and the epoch's second half begins.
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
//   using Send = SendThroughShared<LoadRows<kColumns>, Quantize1x128<kEpsilonBits>, Exchange,
//                                  kThreads, kRowsInShared, kFirstByte, kSegmentsInFlight>;
//   using Receive = ReceiveThroughShared<Send::Stored, Store, Exchange, kThreads, kRowsInShared,
//                                        kFirstByte>;
//   using Kernel = DispatchPermute<Send, Receive, Store, Exchange, kSlotChunks, Sms,
//                                  kThreads>;

#include "moejit_device/exchange/receive_rows.cuh"
#include "moejit_device/exchange/send_rows.cuh"
#include "moejit_device/exchange/unit_walk.cuh"

namespace moejit::device {

// Where the routing is known before.
struct KnownRouting {
  static constexpr bool kIsKnown = true;
  MOEJIT_DEVICE void await() {}
};

// Own rows go from shared memory to their permuted rows, behind the first chunks.
template <typename Store, typename Exchange, int32_t kThreads, int32_t kSlotChunks,
          typename Routing>
struct PermuteOwnRows {
  MOEJIT_DEVICE static bool needs_slots(int64_t chunk) { return chunk < kSlotChunks; }
  template <typename Rows>
  using Permute = PermuteFromShared<Rows, Store, Exchange::kTopK, kThreads>;

  const RowChainParams& params;
  Routing& routing;
  bool is_wanted = false;

  template <typename Rows>
  MOEJIT_DEVICE void find(int64_t slot, int32_t first, int32_t count) {
    routing.await();
    const int32_t row = ptx::thread_index() / kSegmentLanes;
    is_wanted = Permute<Rows>::find_places(params, slot + row, first + row, row < count);
  }
  template <typename Rows>
  MOEJIT_DEVICE void take(int64_t slot, int32_t first, int32_t count) {
    Permute<Rows>::store_scales(params, slot, first, count,
                                [&](int32_t i) { return ptx::load(Rows::scales(first) + i); });
    const int32_t row = ptx::thread_index() / kSegmentLanes;
    if (is_wanted) Permute<Rows>::copy_row(params, slot + row, first + row);
  }
};

template <typename Send, typename Receive, typename Store, typename Exchange_, int32_t kSlotChunks,
          typename Sms, int32_t kThreads_>
struct DispatchPermute {
  using Exchange = Exchange_;
  static_assert(Exchange::kRanks > 1, "one rank has nobody to exchange with");

  static constexpr int32_t kRanks = Exchange::kRanks;
  static constexpr int32_t kThreads = kThreads_;
  using Walk = UnitWalk<Sms>;
  static constexpr int32_t kSharedBytes = larger(Walk::kSharedBytes, Send::kSharedBytes);
  static constexpr int32_t kCtasPerSm = smaller(Send::Load::kThreadsPerSm / kThreads, int32_t{32});

  MOEJIT_DEVICE static void run(const DispatchPermuteParams& params) {
    const ExchangeGroup group = ExchangeGroup::before_arrival(params.group);
    group.check_tokens(params.saved_tokens, params.tokens);
    move(params, group, Walk(params.tickets), KnownRouting{});
  }

  // Calls routing.await() before it reads what a route writes; and, unless the routing is known
  // before, routing.take_part() first, behind at most one chunk that this CTA sends. Every thread
  // calls.
  template <typename Routing>
  MOEJIT_DEVICE static void move(const DispatchPermuteParams& params, const ExchangeGroup& group,
                                 const Walk& walk, Routing routing) {
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
    if (walk.works()) {
      send(params, group, rows, walk, routing);
      routing.await();
      walk.for_each_part(
          [&](int32_t part, int32_t parts) { Store::finish_part(rows, part, parts); });
      receive(params, group, rows, walk);
    }
    // Each of the flags was waited for by a CTA that has ended.
    walk.end([&] { ptx::store(ptx::global(group.params.epoch), group.epoch); });
  }

 private:
  template <typename Routing>
  MOEJIT_DEVICE static void send(const DispatchPermuteParams& params, const ExchangeGroup& group,
                                 const RowChainParams& rows, const Walk& walk, Routing& routing) {
    const auto raise = [&](int64_t chunk) {
      group.raise_everywhere<kRanks>(params.row_flags,
                                     group.rank() * int64_t{Exchange::kChunks} + chunk);
    };
    PermuteOwnRows<Store, Exchange, kThreads, kSlotChunks, Routing> own{rows, routing};
    Send send;
    const auto visit = [&](int64_t chunk) { send.send(params, group, rows, chunk, own, raise); };
    if constexpr (Routing::kIsKnown) {
      walk.send(Exchange::kChunks, visit);
    } else {
      int64_t chunk = walk.next_sent();
      if (chunk < smaller(kSlotChunks, Exchange::kChunks)) {
        visit(chunk);
        chunk = walk.next_sent();
      }
      routing.take_part();
      walk.send_from(chunk, Exchange::kChunks, visit);
    }
    send.end(raise);
  }

  MOEJIT_DEVICE static void receive(const DispatchPermuteParams& params, const ExchangeGroup& group,
                                    const RowChainParams& rows, const Walk& walk) {
    // First the chunks of all ranks whose own rows are in slots, then the chunks of the other
    // ranks; the ranks in turn, from this one or the next one on.
    constexpr int64_t kOfAll = int64_t{kRanks} * kSlotChunks;
    constexpr int64_t kOfOthers = int64_t{kRanks - 1} * (Exchange::kChunks - kSlotChunks);
    Receive receive;
    receive.begin();
    walk.receive(kOfAll + kOfOthers, [&](int64_t unit) {
      const bool is_of_all = unit < kOfAll;
      const int64_t place = is_of_all ? unit : unit - kOfAll;
      const int32_t sources = is_of_all ? kRanks : kRanks - 1;
      const int64_t chunk = place / sources + (is_of_all ? 0 : kSlotChunks);
      const auto next = static_cast<int32_t>(place % sources) + kRanks - sources;
      receive_chunk(params, group, rows, (group.rank() + next) % kRanks, chunk, receive);
    });
    receive.end();
  }

  MOEJIT_DEVICE static void receive_chunk(const DispatchPermuteParams& params,
                                          const ExchangeGroup& group, const RowChainParams& rows,
                                          int32_t source, int64_t chunk, Receive& receive) {
    const int32_t own = group.rank();
    // One lane waits for its warp.
    if (ptx::lane_index() == 0) {
      group.wait(ptx::global(static_cast<const uint32_t*>(params.row_flags[own])) +
                     (source * int64_t{Exchange::kChunks} + chunk),
                 source);
    }
    ptx::sync_warp();
    receive.receive(params.slots[own], params.slot_scales[own], rows,
                    source * int64_t{Exchange::kMaxTokens} + chunk * Exchange::kChunkTokens,
                    Exchange::tokens_in_chunk(chunk, Exchange::kMaxTokens));
  }
};

}  // namespace moejit::device
