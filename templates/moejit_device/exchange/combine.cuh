// SPDX-License-Identifier: Apache-2.0
#pragma once

// Combine: results go home and are added there. A rank has added what its own experts made of a
// token, in bf16, at the token's slot. It sends that row to the token's rank; home adds the rows of
// the ranks in ascending order, its own among them, in fp32 from 0, and rounds once to bf16.
//
// In a backward call the gradients of the probabilities go along: each belongs to one expert, so
// that home puts every one where it belongs and adds nothing.

#include "moejit_device/core/probability.cuh"
#include "moejit_device/exchange/dispatch_rows.cuh"

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
      group.raise(params.result_flags[home], group.rank() * int64_t{Exchange::kChunks} + chunk);
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
      for (int32_t i = ptx::thread_index(); i < count * kTopK; i += kThreads) {
        const int64_t choice = first * kTopK + i;
        const int64_t slot_choice = slots * kTopK + choice;
        if (ptx::load(ptx::global(params.slot_ids) + slot_choice) < 0) continue;
        ptx::store(ptx::global(params.dprobs_home[home]) + choice,
                   ptx::load(ptx::global(params.slot_dprobs) + slot_choice));
      }
    }
  }

  MOEJIT_DEVICE static void send(const CombinePushParams& params, const ExchangeGroup& group,
                                 int32_t home, int64_t slots, const Position (&at)[kSegments]) {
    const auto results = ptx::global(static_cast<const Bf16*>(params.slot_results));
    Bf16Segment segment[kSegments];
    bool is_here[kSegments];
#pragma unroll
    for (int32_t s = 0; s < kSegments; ++s) is_here[s] = has_rows(params, slots, at[s]);
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

  // Returns whether an expert of this rank has a row of the token.
  MOEJIT_DEVICE static bool has_rows(const CombinePushParams& params, int64_t slots,
                                     const Position& at) {
    uint32_t found = 0;
#pragma unroll
    for (int32_t first = 0; first < kTopK; first += kSegmentLanes) {
      const int32_t k = first + segment_lane();
      if (!at.is_real() || k >= kTopK) continue;
      const int64_t choice = (slots + at.row) * kTopK + k;
      found |= ptx::load(ptx::global(params.slot_ids) + choice) >= 0 ? 1u : 0u;
    }
    return or_of_segment(found) != 0;
  }
};

// Adds the results of a token, a chunk at a time, when they have come.
template <typename Exchange, int32_t kColumns, bool kHasDprobs, typename Prob, int32_t kThreads_>
struct CombineSum {
  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kSharedBytes = 0;
  static constexpr int32_t kCtasPerSm = smaller(1024 / kThreads, int32_t{32});
  static constexpr int32_t kTopK = Exchange::kTopK, kRanks = Exchange::kRanks;
  using Position = SegmentPosition<kColumns>;
  using Id = typename Exchange::Id;

  MOEJIT_DEVICE static void run(const CombineSumParams& params) {
    const ExchangeGroup group = ExchangeGroup::after_arrival(params.group);
    for (int64_t chunk = ptx::cta_index(); chunk < Exchange::kChunks; chunk += ptx::cta_count()) {
      await(params, group, chunk);
      const int64_t first = chunk * Exchange::kChunkTokens;
      const int32_t count = Exchange::tokens_in_chunk(chunk, params.tokens);
      for_each_segment<kColumns, kThreads, 1>(
          first, count, [&](const Position(&at)[1]) { add(params, group, at[0]); });
      if constexpr (kHasDprobs) take_dprobs(params, group, first, count);
    }
  }

 private:
  // Every thread waits for itself, the lanes of a warp for different ranks: a warp's barrier passes
  // on what they have seen.
  MOEJIT_DEVICE static void await(const CombineSumParams& params, const ExchangeGroup& group,
                                  int64_t chunk) {
    const int32_t from = ptx::lane_index();
    if (from < kRanks && from != group.rank()) {
      group.wait(ptx::global(params.result_flags) + (from * int64_t{Exchange::kChunks} + chunk),
                 from);
    }
    ptx::sync_warp();
  }

  MOEJIT_DEVICE static void add(const CombineSumParams& params, const ExchangeGroup& group,
                                const Position& at) {
    const uint32_t ranks = Exchange::ranks_of(params.topk_ids, at.row, at.is_real());
    Bf16Segment segment[kRanks];
#pragma unroll
    for (int32_t from = 0; from < kRanks; ++from) {
      const bool is_own = from == group.rank();
      const auto* matrix = static_cast<const Bf16*>(is_own ? params.slot_results : params.results);
      segment[from] =
          fetch_arrived_runs(ptx::global(matrix), at, from * int64_t{Exchange::kMaxTokens} + at.row,
                             ((ranks >> from) & 1u) != 0);
    }
    ValueSegment sum = {};
#pragma unroll
    for (int32_t from = 0; from < kRanks; ++from) {
      const ValueSegment values = unpack_bf16(segment[from]);
#pragma unroll
      for (int32_t v = 0; v < kLaneColumns; ++v) {
        if (((ranks >> from) & 1u) != 0) sum.value[v] = ptx::add(sum.value[v], values.value[v]);
      }
    }
    store_runs(ptx::global(static_cast<Bf16*>(params.output)), at, pack_bf16(sum));
  }

  // As fetch_runs(), of memory that peers have written while this kernel ran.
  MOEJIT_DEVICE static Bf16Segment fetch_arrived_runs(ptx::GlobalPtr<const Bf16> matrix,
                                                      const Position& at, int64_t row, bool reads) {
    const auto first = ptx::as<const Bytes16>(matrix + at.offset_in_row(row, run_column(0)));
    Bf16Segment segment = {};
#pragma unroll
    for (int32_t run = 0; run < 2; ++run) {
      if (reads && at.is_inside(run_column(run))) {
        segment.run[run] = ptx::load_peer_data(first + run * kSegmentLanes);
      }
    }
    return segment;
  }

  MOEJIT_DEVICE static void take_dprobs(const CombineSumParams& params, const ExchangeGroup& group,
                                        int64_t first, int32_t count) {
    const auto ids = ptx::global(static_cast<const Id*>(params.topk_ids));
    for (int32_t i = ptx::thread_index(); i < count * kTopK; i += kThreads) {
      const int64_t choice = first * kTopK + i;
      const Id id = ptx::load(ids + choice);
      const bool is_expert = id >= 0 && id < kRanks * Exchange::kRankExperts;
      const int32_t owner = is_expert ? static_cast<int32_t>(id) / Exchange::kRankExperts : -1;
      float dprob = 0.0f;
      if (owner == group.rank()) {
        const int64_t slots = owner * int64_t{Exchange::kMaxTokens};
        dprob = ptx::load(ptx::global(params.slot_dprobs) + (slots * kTopK + choice));
      } else if (owner >= 0) {
        dprob = ptx::load_peer_data(ptx::global(params.dprobs_home) + choice);
      }
      store_prob(ptx::global(static_cast<Prob*>(params.dprobs)) + choice, dprob);
    }
  }
};

}  // namespace moejit::device
