// SPDX-License-Identifier: Apache-2.0
#pragma once

// The whole dispatch of a forward call in one kernel: choices go to all ranks and are routed, while
// rows are sent, and rows are permuted as they come.
//
// The rows that a rank sends follow from its own choices, so that they set out at once; the first
// own rows go to their slots meanwhile. The first CTAs send the choices, each a piece. Those that
// send no rows take the pieces that come, one after the other, and route them: they tell each other
// how many rows each expert has in each piece, and from these counts each knows where its rows
// begin. The others send a chunk first, and then take the pieces that are left, most often none. So
// all are taken before anybody waits for the routes, in whatever order CTAs run. Who takes several
// ranks them twice.
//
// route_flags [2, pieces] are of this rank: for a piece's counts, and for its route.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/exchange/route_dispatch_permute.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kColumns = 7168;
//   ...
//   using Exchange = TokenExchange<kRanks, kRankExperts, kTopK, kMaxTokens, kChunkTokens>;
//   using Choices = ExchangeChoices<kRanks, kRankExperts, kTopK, kMaxTokens, kParts, kThreads>;
//   using Routing = Route<kRankExperts, kTopK, kSplitsAlignment, kThreads / 32, kHasColwiseOffs,
//                         int32_t, false, kHistograms>;
//   using Store = StorePermuted<kColumns, kTopK, kRankExperts, kMovesProbs, E4m3>;
//   using Dispatch = DispatchPermute<Send, Receive, Store, Exchange, kSlotChunks, Sms,
//                                    kThreads>;
//   using Kernel = RouteDispatchPermute<Choices, Routing, Dispatch>;

#include "moejit_device/exchange/choices.cuh"
#include "moejit_device/exchange/dispatch_permute.cuh"
#include "moejit_device/map/route.cuh"

namespace moejit::device {

template <typename Choices, typename Routing, typename Dispatch>
struct RouteDispatchPermute {
  static constexpr int32_t kThreads = Dispatch::kThreads;
  static constexpr int32_t kCtasPerSm = Dispatch::kCtasPerSm;
  static constexpr int32_t kPieces = Choices::kPieces;
  static constexpr int32_t kExperts = Dispatch::Exchange::kRankExperts;
  static constexpr int32_t kSharedBytes = Routing::kSharedBytes;
  static_assert(Choices::kThreads == kThreads && Routing::kThreads == kThreads,
                "all parts of the kernel have its CTAs");
  static_assert(kSharedBytes - 4 * (2 + kThreads / 32) * kExperts >= Dispatch::kSharedBytes,
                "histograms lie behind rows");

  MOEJIT_DEVICE static void run(const RouteDispatchPermuteParams& params) {
    const ExchangeGroup group = ExchangeGroup::before_arrival(params.dispatch.group);
    Choices::save_tokens(params.choices);
    for (int32_t piece = ptx::cta_index(); piece < kPieces; piece += ptx::cta_count()) {
      Choices::send(params.choices, group, piece);
    }
    const Walk walk(params.dispatch.tickets);
    Dispatch::move(params.dispatch, group, walk, PieceRouting{params, group, walk});
  }

 private:
  using Walk = typename Dispatch::Walk;
  static_assert(kPieces <= 64, "a bit for each");

  // The routing as the rest of the kernel sees it.
  struct PieceRouting {
    static constexpr bool kIsKnown = false;
    const RouteDispatchPermuteParams& params;
    const ExchangeGroup& group;
    const Walk& walk;
    bool has_come = false;

    MOEJIT_DEVICE void take_part() { route_pieces(params, group, walk); }
    MOEJIT_DEVICE void await() {
      if (!has_come) await_pieces(group, params.route_flags + kPieces);
      has_come = true;
    }
  };

  MOEJIT_DEVICE static Routing route_of(const RouteDispatchPermuteParams& params, int32_t piece) {
    return Routing(params.route, Choices::begin_of(piece), Choices::end_of(piece), piece == 0);
  }

  // Routes pieces until all are taken. Every thread calls.
  MOEJIT_DEVICE static void route_pieces(const RouteDispatchPermuteParams& params,
                                         const ExchangeGroup& group, const Walk& walk) {
    uint64_t taken = 0;
    for (int64_t next = walk.next_piece(); next < kPieces; next = walk.next_piece()) {
      const auto piece = static_cast<int32_t>(next);
      Choices::receive(params.choices, group, piece);
      ptx::sync_cta();  // the choices of the piece are in their slots
      route_of(params, piece).rank_part();
      ptx::sync_cta();  // the warps' histograms are complete
      tell_counts(params, group, piece);
      taken |= uint64_t{1} << piece;
    }
    if (taken == 0) return;
    const bool is_one = (taken & (taken - 1)) == 0;
    await_pieces(group, params.route_flags);
    for (int32_t piece = 0; piece < kPieces; ++piece) {
      if (((taken >> piece) & 1u) == 0) continue;
      const Routing route = route_of(params, piece);
      if (!is_one) route.rank_part();
      sum_counts(params, piece);
      route.place_ranked();
      group.raise_own(params.route_flags + kPieces, piece);
    }
  }

  // Tells the other CTAs how many rows each expert has in a piece.
  MOEJIT_DEVICE static void tell_counts(const RouteDispatchPermuteParams& params,
                                        const ExchangeGroup& group, int32_t piece) {
    const auto counts = ptx::global(params.piece_counts) + piece * kExperts;
    for (int32_t e = ptx::thread_index(); e < kExperts; e += kThreads) {
      int32_t count = 0;
#pragma unroll
      for (int32_t warp = 0; warp < kThreads / 32; ++warp) {
        count += ptx::load(Routing::of_warp(warp) + e);
      }
      ptx::store(counts + e, count);
    }
    group.raise_own(params.route_flags, piece);
  }

  // Adds the counts of all pieces to the sums of those before this one and of the others, by a
  // thread for each expert and each of kShares shares of the pieces.
  MOEJIT_DEVICE static void sum_counts(const RouteDispatchPermuteParams& params, int32_t piece) {
    constexpr int32_t kShares = smaller(larger(kThreads / kExperts, int32_t{1}), kPieces);
    constexpr int32_t kOfShare = ceil_div(kPieces, kShares),
                      kBatch = smaller(kOfShare, int32_t{16});
    for (int32_t i = ptx::thread_index(); i < kShares * kExperts; i += kThreads) {
      const int32_t expert = i % kExperts, begin = i / kExperts * kOfShare;
      const auto counts = ptx::global(params.piece_counts) + expert;
      int32_t before = 0, from = 0;
      for (int32_t first = begin; first < begin + kOfShare; first += kBatch) {
        int32_t count[kBatch];
#pragma unroll
        for (int32_t b = 0; b < kBatch; ++b) {
          count[b] = ptx::load(counts + smaller(first + b, kPieces - 1) * kExperts);
        }
#pragma unroll
        for (int32_t b = 0; b < kBatch; ++b) {
          const bool is_of_share = first + b < smaller(begin + kOfShare, kPieces);
          const int32_t added = is_of_share ? count[b] : 0;
          before += first + b < piece ? added : 0;
          from += first + b < piece ? 0 : added;
        }
      }
      if (before != 0) ptx::atomic_add(Routing::before_part() + expert, before);
      if (from != 0) ptx::atomic_add(Routing::from_part_on() + expert, from);
    }
  }

  // Waits for the flags of all pieces, which CTAs of this rank raise. Every thread calls.
  MOEJIT_DEVICE static void await_pieces(const ExchangeGroup& group, const uint32_t* flags) {
    for (int32_t piece = ptx::thread_index(); piece < kPieces; piece += kThreads) {
      group.wait_for_own(ptx::global(flags) + piece);
    }
    ptx::sync_cta();
  }
};

}  // namespace moejit::device
