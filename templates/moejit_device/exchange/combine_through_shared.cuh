// SPDX-License-Identifier: Apache-2.0
#pragma once

// The combine of combine_rows.cuh, with the same bits, for rows that fit in shared memory. Rows of
// the experts, and rows that came from other ranks, are copied there in the order in which they are
// added. Most warps of a CTA add. One warp takes units, lists their rows and brings them. It is
// ahead by as many rows as there is room for, also in the next unit. Another warp raises flags,
// whose fences wait for all stores before them. So few CTAs keep much on its way.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/exchange/combine_through_shared.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kColumns = 7168;
//   ...
//   using Exchange = TokenExchange<kRanks, kRankExperts, kTopK, kMaxTokens, kChunkTokens>;
//   using Kernel = CombineThroughShared<Exchange, kColumns, kHasDprobs, float, Sms, kThreads,
//                                       kRowsInShared>;

#include "moejit_device/exchange/result_rows.cuh"
#include "moejit_device/exchange/unit_queue.cuh"
#include "moejit_device/exchange/unit_walk.cuh"

namespace moejit::device {

template <typename Exchange, int32_t kColumns, bool kHasDprobs, typename Prob, typename Sms,
          int32_t kThreads_, int32_t kRowsInShared>
class CombineThroughShared {
  static_assert(Exchange::kRanks > 1, "one rank has nobody to exchange with");

 public:
  static constexpr int32_t kThreads = kThreads_;

 private:
  static constexpr int32_t kRanks = Exchange::kRanks, kTopK = Exchange::kTopK;
  static constexpr int32_t kAdders = kThreads - 64;
  using Walk = UnitWalk<Sms>;
  using Queue = UnitQueue<Exchange, kAdders, Walk::kSharedBytes>;
  static constexpr int32_t kFirstBarrier = align_up(Queue::kEnd, 8);
  static constexpr int32_t kFirstRow = align_up(kFirstBarrier + 16 * kRowsInShared, 128);
  using Ring = RowRing<kColumns, kAdders, kRowsInShared, kFirstBarrier, kFirstRow>;
  using Place = typename Queue::Place;
  using Share = typename Ring::Share;
  using Sum = typename Ring::Sum;

 public:
  static constexpr int32_t kSharedBytes = Ring::kEnd;
  static constexpr int32_t kCtasPerSm = 2;

  MOEJIT_DEVICE static void run(const CombineRowsParams& params) {
    const ExchangeGroup group = ExchangeGroup::after_arrival(params.group);
    const Walk walk(params.tickets);
    if (walk.works()) move(params, group, walk);
    walk.end([] {});
  }

 private:
  MOEJIT_DEVICE static void move(const CombineRowsParams& params, const ExchangeGroup& group,
                                 const Walk& walk) {
    if (ptx::thread_index() == 0) {
      Queue::init();
      Ring::init();
      ptx::fence_mbarrier_init();
    }
    ptx::sync_cta();
    const int32_t warp = ptx::warp_index();
    if (warp < kAdders / 32) {
      add_units(params, group);
    } else if (warp == kAdders / 32) {
      bring_units(params, group, walk);
    } else {
      end_units(params, group);
    }
  }

  // Where the tokens of a unit are: from `first` on among the tokens of their rank, `count` of
  // them, and from slot `slot` on.
  struct Tokens {
    int64_t first, slot;
    int32_t count;
  };
  MOEJIT_DEVICE static Tokens tokens_of(const CombineRowsParams& params, const ExchangeGroup& group,
                                        const CombineUnit& unit) {
    const int64_t first = unit.chunk * int64_t{Exchange::kChunkTokens};
    const int64_t tokens = unit.home == group.rank() ? params.tokens : Exchange::kMaxTokens;
    return {first, unit.home * int64_t{Exchange::kMaxTokens} + first,
            Exchange::tokens_in_chunk(unit.chunk, tokens)};
  }

  // The warp that takes units.

  MOEJIT_DEVICE static void bring_units(const CombineRowsParams& params, const ExchangeGroup& group,
                                        const Walk& walk) {
    typename Ring::Bringing ring;
    Place at;
    const auto take = [&](const CombineUnit& unit, bool is_scarce) {
      bring_unit(params, group, unit, at, ring);
      if (is_scarce) Queue::await_added(at);
      at.advance();
    };
    walk.send_by_warp(int64_t{kRanks - 1} * Exchange::kChunks, [&](int64_t number, bool scarce) {
      // The ranks in turn, from the next one on, so that they do not all write to the same.
      const auto place = static_cast<int32_t>(number % (kRanks - 1));
      take({(group.rank() + 1 + place) % kRanks, static_cast<int32_t>(number / (kRanks - 1))},
           scarce);
    });
    walk.receive_by_warp(Exchange::kChunks, [&](int64_t chunk, bool scarce) {
      take({group.rank(), static_cast<int32_t>(chunk)}, scarce);
    });
    Queue::await_free(at);
    Queue::tell(at, {-1, -1});
  }

  MOEJIT_DEVICE static void bring_unit(const CombineRowsParams& params, const ExchangeGroup& group,
                                       const CombineUnit& unit, const Place& at,
                                       typename Ring::Bringing& ring) {
    const Tokens tokens = tokens_of(params, group, unit);
    const bool is_own = unit.home == group.rank();
    Queue::await_free(at);
    Queue::list(at, params.row_map, params.slot_ids, tokens.slot, tokens.count);
    if (is_own) Queue::note_ranks(at, params.topk_ids, tokens.first, tokens.count);
    Queue::tell(at, unit);
    const auto rows = ptx::global(static_cast<const Bf16*>(params.expert_rows));
    bool waits = is_own;
    for (int32_t token = 0; token < tokens.count; ++token) {
      const int32_t listed = Queue::count(at, token);
      for (int32_t i = 0; i < listed; ++i) {
        ring.bring(rows + Queue::row(at, token, i) * int64_t{kColumns});
      }
      if (!is_own) continue;
      if (waits) await(params, group, unit.chunk);
      waits = false;
      bring_results(params, group.rank(), Queue::ranks(at, token), tokens.first + token, ring);
    }
    if (waits) await(params, group, unit.chunk);
  }

  // What the flags told the lanes of this warp is true of copies that one of them starts, too.
  MOEJIT_DEVICE static void await(const CombineRowsParams& params, const ExchangeGroup& group,
                                  int32_t chunk) {
    await_results<Exchange>(params.result_flags[group.rank()], group, chunk, true);
    ptx::fence_proxy_async_global();
  }
  // Brings what other ranks have sent of a token, in ascending order.
  MOEJIT_DEVICE static void bring_results(const CombineRowsParams& params, int32_t own,
                                          uint32_t ranks, int64_t token,
                                          typename Ring::Bringing& ring) {
    const auto results = ptx::global(static_cast<const Bf16*>(params.results[own]));
    for (int32_t from = 0; from < kRanks; ++from) {
      if (from == own || ((ranks >> from) & 1u) == 0) continue;
      ring.bring(results + (from * int64_t{Exchange::kMaxTokens} + token) * kColumns);
    }
  }

  // The warps that add.

  MOEJIT_DEVICE static void add_units(const CombineRowsParams& params, const ExchangeGroup& group) {
    typename Ring::Adding ring;
    for (Place at;; at.advance()) {
      const CombineUnit unit = Queue::next(at);
      if (unit.chunk < 0) return;
      const Tokens tokens = tokens_of(params, group, unit);
      const bool is_own = unit.home == group.rank();
      // A sum of others' tokens goes to the slot of its rank and token at home.
      const auto sums =
          ptx::global(static_cast<Bf16*>(is_own ? params.output : params.results[unit.home]));
      const int64_t first =
          tokens.first + (is_own ? 0 : group.rank() * int64_t{Exchange::kMaxTokens});
      for (int32_t token = 0; token < tokens.count; ++token) {
        const int32_t listed = Queue::count(at, token);
        Share sum = sum_of_rows(listed, ring);
        if (is_own) sum = sum_of_ranks(group.rank(), Queue::ranks(at, token), sum, ring);
        if (is_own || listed >= 0) Ring::store(sums + (first + token) * kColumns, sum);
      }
      Queue::end_adding(at);
    }
  }

  // Return the sum of so many rows, in fp32 from 0, and of what the ranks have of a token, in
  // ascending order, rounded to bf16.
  MOEJIT_DEVICE static Share sum_of_rows(int32_t count, typename Ring::Adding& ring) {
    Sum sum = {};
    for (int32_t i = 0; i < count; ++i) ring.add_next(sum);
    return Ring::rounded(sum);
  }
  MOEJIT_DEVICE static Share sum_of_ranks(int32_t own, uint32_t ranks, const Share& own_sum,
                                          typename Ring::Adding& ring) {
    Sum sum = {};
    for (int32_t from = 0; from < kRanks; ++from) {
      if (((ranks >> from) & 1u) == 0) continue;
      if (from == own) {
        Ring::add(sum, own_sum);
      } else {
        ring.add_next(sum);
      }
    }
    return Ring::rounded(sum);
  }

  // The warp that ends units.

  MOEJIT_DEVICE static void end_units(const CombineRowsParams& params, const ExchangeGroup& group) {
    for (Place at;; at.advance()) {
      const CombineUnit unit = Queue::next(at);
      if (unit.chunk < 0) return;
      const Tokens tokens = tokens_of(params, group, unit);
      Queue::await_added(at);
      if (unit.home == group.rank()) {
        if constexpr (kHasDprobs) {
          take_dprobs<Exchange, 32, Prob>(params, params.dprobs_home[unit.home], unit.home,
                                          tokens.first, tokens.count);
        }
      } else {
        tell_home(params, group, unit, tokens);
      }
      Queue::end(at);
    }
  }
  MOEJIT_DEVICE static void tell_home(const CombineRowsParams& params, const ExchangeGroup& group,
                                      const CombineUnit& unit, const Tokens& tokens) {
    if constexpr (kHasDprobs) {
      send_dprobs<32, kTopK>(params, unit.home, tokens.slot - tokens.first, tokens.first,
                             tokens.count);
    }
    ptx::sync_warp();
    if (ptx::lane_index() != 0) return;
    uint32_t* const flags = params.result_flags[unit.home];
    if (unit.chunk == 0) send_status<Exchange>(flags, group);
    group.raise_one(flags, flag_place<Exchange>(group.rank(), unit.chunk));
  }
};

}  // namespace moejit::device
