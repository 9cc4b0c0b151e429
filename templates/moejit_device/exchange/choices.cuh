// SPDX-License-Identifier: Apache-2.0
#pragma once

// Exchange of choices: every rank learns the ids and probabilities of all ranks, and takes out the
// choices of its own experts. After this each rank routes for itself, as if the S slots were its
// tokens; no counts are exchanged.
//
// The flattened choices of a rank are cut into parts, and what a part is to one rank is a piece. A
// CTA writes its piece to that rank, raises a flag there, and then waits for the same part of that
// rank. So all CTAs have to run at the same time.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/exchange/choices.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kRanks = 2;
//   constexpr int32_t kRankExperts = 128;
//   constexpr int32_t kTopK = 8;
//   constexpr int32_t kMaxTokens = 4096;
//   constexpr int32_t kParts = 32;
//   constexpr int32_t kThreads = 256;
//
//   using Kernel = ExchangeChoices<kRanks, kRankExperts, kTopK, kMaxTokens, kParts, kThreads>;
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_exchange_choices_...,
//                 ExchangeChoicesParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/core/probability.cuh"
#include "moejit_device/exchange/group.cuh"

namespace moejit::device {

template <int32_t kRanks, int32_t kRankExperts, int32_t kTopK, int32_t kMaxTokens, int32_t kParts,
          int32_t kThreads_, typename Id = int32_t, typename Prob = float>
struct ExchangeChoices {
  static_assert(kRanks > 0 && kRanks <= kMostRanks, "the record has a place for each rank");
  static_assert(kThreads_ >= kRanks, "a thread raises the flag of a rank");

  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kCtasPerSm = 1;
  static constexpr int32_t kSharedBytes = 0;
  static constexpr int64_t kChoices = int64_t{kMaxTokens} * kTopK;  // the most of a rank
  static constexpr int64_t kPart = ceil_div(kChoices, int64_t{kParts});

  static constexpr int32_t kPieces = kRanks * kParts;

  MOEJIT_DEVICE static void run(const ExchangeChoicesParams& params) {
    const ExchangeGroup group = ExchangeGroup::before_arrival(params.group);
    save_tokens(params);
    for (int32_t piece = ptx::cta_index(); piece < kPieces; piece += ptx::cta_count()) {
      send(params, group, piece);
    }
    for (int32_t piece = ptx::cta_index(); piece < kPieces; piece += ptx::cta_count()) {
      receive(params, group, piece);
    }
  }

  MOEJIT_DEVICE static void save_tokens(const ExchangeChoicesParams& params) {
    const auto saved = ptx::global(params.saved_tokens);
    if (saved && ptx::cta_index() == 0 && ptx::thread_index() == 0)
      ptx::store(saved, params.tokens);
  }

  // Return where a piece begins and ends among the choices of all ranks, [R, T_max, K].
  MOEJIT_DEVICE static int64_t begin_of(int32_t piece) {
    return piece / kParts * kChoices + smaller(piece % kParts * kPart, kChoices);
  }
  MOEJIT_DEVICE static int64_t end_of(int32_t piece) {
    return piece / kParts * kChoices + smaller((piece % kParts + 1) * kPart, kChoices);
  }

  // Sends a part of the own choices to a rank. Every thread calls.
  MOEJIT_DEVICE static void send(const ExchangeChoicesParams& params, const ExchangeGroup& group,
                                 int32_t piece) {
    const int32_t to = piece / kParts;
    const int64_t end = end_of(piece) - to * kChoices;
    for (int64_t i = begin_of(piece) - to * kChoices + ptx::thread_index(); i < end;
         i += kBatch * kThreads) {
      send_batch(params, group, to, i, end);
    }
    group.raise(params.choice_flags[to], group.rank() * int64_t{kParts} + piece % kParts);
  }

  // Takes a part of a rank's choices.
  MOEJIT_DEVICE static void receive(const ExchangeChoicesParams& params, const ExchangeGroup& group,
                                    int32_t piece) {
    const ptx::GlobalPtr<const uint32_t> flags{params.choice_flags[group.rank()]};
    // Each thread waits for itself, so that what came is visible to it.
    group.wait(flags + piece, piece / kParts);
    const ptx::GlobalPtr<const int32_t> ids{params.choice_ids[group.rank()]};
    const ptx::GlobalPtr<const float> probs{params.choice_probs[group.rank()]};
    const int64_t end = end_of(piece);
    for (int64_t first = begin_of(piece) + ptx::thread_index(); first < end;
         first += kBatch * kThreads) {
      int32_t id[kBatch];
      float prob[kBatch];
#pragma unroll
      for (int32_t b = 0; b < kBatch; ++b) {
        const int64_t at = smaller(first + b * kThreads, end - 1);
        id[b] = own_expert(ptx::load_peer_data(ids + at), group.rank());
        prob[b] = ptx::load_peer_data(probs + at);
      }
#pragma unroll
      for (int32_t b = 0; b < kBatch; ++b) {
        const int64_t at = first + b * kThreads;
        if (at >= end) continue;
        ptx::store(ptx::global(params.slot_ids) + at, id[b]);
        ptx::store(ptx::global(params.slot_probs) + at, id[b] >= 0 ? prob[b] : 0.0f);
      }
    }
  }

 private:
  // Choices of a thread whose loads are started at once. Where one of them does not exist, another
  // is loaded in its place: loads that depend on a condition of their own would be started one by
  // one.
  static constexpr int32_t kBatch = 4;

  // Sends the own choices i, i + kThreads and so on that are before `end`.
  MOEJIT_DEVICE static void send_batch(const ExchangeChoicesParams& params,
                                       const ExchangeGroup& group, int32_t to, int64_t i,
                                       int64_t end) {
    const auto ids = ptx::global(static_cast<const Id*>(params.topk_ids));
    const auto probs = ptx::global(static_cast<const Prob*>(params.topk_probs));
    const int64_t count = params.tokens * kTopK;
    Id id[kBatch] = {};
    float prob[kBatch] = {};
    if (count > 0) {
#pragma unroll
      for (int32_t b = 0; b < kBatch; ++b) {
        const int64_t choice = smaller(i + b * kThreads, count - 1);
        id[b] = ptx::load(ids + choice);
        prob[b] = load_prob(probs + choice);
      }
    }
#pragma unroll
    for (int32_t b = 0; b < kBatch; ++b) {
      const int64_t choice = i + b * kThreads;
      if (choice >= end) continue;
      const int64_t at = group.rank() * kChoices + choice;
      const bool exists = choice < count;
      ptx::store(ptx::global(params.choice_ids[to]) + at, exists ? narrowed(id[b]) : int32_t{-1});
      ptx::store(ptx::global(params.choice_probs[to]) + at, exists ? prob[b] : 0.0f);
    }
  }

  // -2 stands for an id that is no expert: the route of the first rank tells of it.
  MOEJIT_DEVICE static int32_t narrowed(Id id) {
    return id < -1 || id >= kRanks * kRankExperts ? -2 : static_cast<int32_t>(id);
  }

  MOEJIT_DEVICE static int32_t own_expert(int32_t id, int32_t rank) {
    if (id < -1) return rank == 0 ? id : -1;
    const int32_t own = id - rank * kRankExperts;
    return own >= 0 && own < kRankExperts ? own : -1;
  }
};

}  // namespace moejit::device
