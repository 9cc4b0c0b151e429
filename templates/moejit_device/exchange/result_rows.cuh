// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the kernels of combine share: flags of results, the wait for the sums of other ranks, the
// sum over ranks, and gradients of probabilities and status words, which go home beside the rows.

#include "moejit_device/core/probability.cuh"
#include "moejit_device/core/segment_sum.cuh"
#include "moejit_device/exchange/chunk_walk.cuh"
#include "moejit_device/exchange/group.cuh"
#include "moejit_device/exchange/slots.cuh"
#include "moejit_device/exchange/token_ranks.cuh"

namespace moejit::device {

// Return where a rank's results have their flags at home, and behind them its status word:
// result_flags [R, chunks + 1].
template <typename Exchange>
MOEJIT_DEVICE int64_t flag_place(int32_t from, int64_t chunk) {
  return from * int64_t{Exchange::kChunks + 1} + chunk;
}
template <typename Exchange>
MOEJIT_DEVICE int64_t status_place(int32_t from) {
  return flag_place<Exchange>(from, Exchange::kChunks);
}

// Sends the status word of this rank. One thread calls, the one that raises the first flag.
template <typename Exchange>
MOEJIT_DEVICE void send_status(uint32_t* flags, const ExchangeGroup& group) {
  const ptx::GlobalPtr<const uint32_t> status{group.params.status};
  ptx::store(ptx::global(flags) + status_place<Exchange>(group.rank()),
             ptx::load_acquire_system(status));
}

// Raises the flag of a chunk of results at home. The status word goes before the first chunk's: the
// thread that raises the flag stores it. Every thread calls.
template <typename Exchange>
MOEJIT_DEVICE void raise_results(uint32_t* flags, const ExchangeGroup& group, int64_t chunk) {
  if (chunk == 0 && ptx::thread_index() == 0) send_status<Exchange>(flags, group);
  group.raise(flags, flag_place<Exchange>(group.rank(), chunk));
}

// Waits until all ranks have sent their sums of a chunk. Every thread waits for itself, the lanes
// of a warp for different ranks: a warp's barrier passes on what they have seen. With the first
// chunk come the status words, which one warp takes, so that all ranks end an exchange with the
// same bits: what the experts of one rank had to tell is true of results that all of them get.
template <typename Exchange>
MOEJIT_DEVICE void await_results(const uint32_t* result_flags, const ExchangeGroup& group,
                                 int64_t chunk, bool takes_status) {
  const int32_t from = ptx::lane_index();
  if (from < Exchange::kRanks && from != group.rank()) {
    const auto flags = ptx::global(result_flags);
    group.wait(flags + flag_place<Exchange>(from, chunk), from);
    if (chunk == 0 && takes_status) {
      const uint32_t bits = ptx::load_peer_data(flags + status_place<Exchange>(from));
      if (bits != 0) ptx::atomic_or(ptx::global(group.params.status), bits);
    }
  }
  ptx::sync_warp();
}

// Stores the sum of a token's rows from `ranks`, a bit for each. `results` [S, H] has the rows of
// the other ranks, `own` is this rank's row.
template <typename Exchange, typename Params, int32_t kColumns>
MOEJIT_DEVICE void store_sum(const Params& params, const void* results, int32_t own_rank,
                             const SegmentPosition<kColumns>& at, uint32_t ranks,
                             const Bf16Segment& own) {
  const auto matrix = ptx::global(static_cast<const Bf16*>(results));
  Bf16Segment segment[Exchange::kRanks];
#pragma unroll
  for (int32_t from = 0; from < Exchange::kRanks; ++from) {
    segment[from] = fetch_arrived_runs(matrix, at, from * int64_t{Exchange::kMaxTokens} + at.row,
                                       from != own_rank && ((ranks >> from) & 1u) != 0);
  }
  ValueSegment sum = {};
#pragma unroll
  for (int32_t from = 0; from < Exchange::kRanks; ++from) {
    add_values(sum, unpack_bf16(from == own_rank ? own : segment[from]),
               ((ranks >> from) & 1u) != 0);
  }
  store_runs(ptx::global(static_cast<Bf16*>(params.output)), at, pack_bf16(sum));
}

// Sends the gradients of the probabilities of `count` tokens from `first` on home, where their
// slots begin with `slots`. kThreads neighboring threads call, whose numbers begin with a multiple
// of kThreads.
template <int32_t kThreads, int32_t kTopK, typename Params>
MOEJIT_DEVICE void send_dprobs(const Params& params, int32_t home, int64_t slots, int64_t first,
                               int32_t count) {
  for (int32_t i = ptx::thread_index() % kThreads; i < count * kTopK; i += kThreads) {
    const int64_t choice = first * kTopK + i;
    const int64_t slot_choice = slots * kTopK + choice;
    if (ptx::load(ptx::global(params.slot_ids) + slot_choice) < 0) continue;
    ptx::store(ptx::global(params.dprobs_home[home]) + choice,
               ptx::load(ptx::global(params.slot_dprobs) + slot_choice));
  }
}

// Stores the gradients of the probabilities of `count` tokens from `first` on. Each belongs to one
// expert, so that home puts every one where it belongs and adds nothing. `arrived` [T_max, K] has
// the gradients from other ranks. Called as send_dprobs() is.
template <typename Exchange, int32_t kThreads, typename Prob, typename Params>
MOEJIT_DEVICE void take_dprobs(const Params& params, const float* arrived, int32_t own_rank,
                               int64_t first, int32_t count) {
  constexpr int32_t kTopK = Exchange::kTopK;
  using Id = typename Exchange::Id;
  const auto ids = ptx::global(static_cast<const Id*>(params.topk_ids));
  for (int32_t i = ptx::thread_index() % kThreads; i < count * kTopK; i += kThreads) {
    const int64_t choice = first * kTopK + i;
    const Id id = ptx::load(ids + choice);
    const bool is_expert = id >= 0 && id < Exchange::kRanks * Exchange::kRankExperts;
    const int32_t owner = is_expert ? static_cast<int32_t>(id) / Exchange::kRankExperts : -1;
    float dprob = 0.0f;
    if (owner == own_rank) {
      const int64_t slots = owner * int64_t{Exchange::kMaxTokens};
      dprob = ptx::load(ptx::global(params.slot_dprobs) + (slots * kTopK + choice));
    } else if (owner >= 0) {
      dprob = ptx::load_peer_data(ptx::global(arrived) + choice);
    }
    store_prob(ptx::global(static_cast<Prob*>(params.dprobs)) + choice, dprob);
  }
}

}  // namespace moejit::device
