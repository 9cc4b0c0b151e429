// SPDX-License-Identifier: Apache-2.0
#pragma once

// Exchange of choices where a transport moves the bytes: a rank packs its own, the transport brings
// the packed choices of every rank to all, and each rank takes out the choices of its experts.
// Nothing here waits, and no kernel reaches a peer's memory.
//
// Each rank sends places for T_max tokens in every call, so that all ranks know the bytes, and no
// host has to.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/exchange/gathered_choices.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kRanks = 2;
//   constexpr int32_t kRankExperts = 128;
//   constexpr int32_t kTopK = 8;
//   constexpr int32_t kMaxTokens = 4096;
//   constexpr int32_t kThreads = 256;
//
//   using Kernel = PackChoices<kRanks, kRankExperts, kTopK, kMaxTokens, kThreads>;

#include "moejit_device/core/integer.cuh"
#include "moejit_device/core/probability.cuh"
#include "moejit_device/map/call_tokens.cuh"
#include "moejit_device/params/collective_params.h"

namespace moejit::device {

// Writes the choices of this rank as int32 and fp32: -2 for an id that is no expert, -1 for tokens
// that the call does not have.
template <int32_t kRanks, int32_t kRankExperts, int32_t kTopK, int32_t kMaxTokens,
          int32_t kThreads_, typename Id = int32_t, typename Prob = float>
struct PackChoices {
  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kCtasPerSm = 2048 / kThreads;
  static constexpr int32_t kSharedBytes = 0;

  MOEJIT_DEVICE static void run(const PackChoicesParams& params) {
    const auto ids = ptx::global(static_cast<const Id*>(params.topk_ids));
    const auto probs = ptx::global(static_cast<const Prob*>(params.topk_probs));
    const int64_t first = int64_t{ptx::cta_index()} * kThreads + ptx::thread_index();
    const auto saved = ptx::global(params.saved_tokens);
    if (saved && first == 0) ptx::store(saved, params.tokens);
    const int64_t step = int64_t{ptx::cta_count()} * kThreads;
    for (int64_t i = first; i < int64_t{kMaxTokens} * kTopK; i += step) {
      const bool exists = i < params.tokens * kTopK;
      ptx::store(ptx::global(params.packed_ids) + i, exists ? narrowed(ptx::load(ids + i)) : -1);
      ptx::store(ptx::global(params.packed_probs) + i, exists ? load_prob(probs + i) : 0.0f);
    }
  }

 private:
  MOEJIT_DEVICE static int32_t narrowed(Id id) {
    return id < -1 || id >= kRanks * kRankExperts ? -2 : static_cast<int32_t>(id);
  }
};

// Takes the choices of this rank's experts out of the choices of all ranks. The route of the first
// rank tells of ids that are no expert.
template <int32_t kRanks, int32_t kRankExperts, int32_t kTopK, int32_t kMaxTokens,
          int32_t kThreads_>
struct TakeChoices {
  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kCtasPerSm = 2048 / kThreads;
  static constexpr int32_t kSharedBytes = 0;

  MOEJIT_DEVICE static void run(const TakeChoicesParams& params) {
    const auto rank = static_cast<int32_t>(params.rank);
    const int64_t step = int64_t{ptx::cta_count()} * kThreads;
    int64_t i = int64_t{ptx::cta_index()} * kThreads + ptx::thread_index();
    for (; i < int64_t{kRanks} * kMaxTokens * kTopK; i += step) {
      const int32_t id = own_expert(ptx::load(ptx::global(params.choice_ids) + i), rank);
      const float prob = id >= 0 ? ptx::load(ptx::global(params.choice_probs) + i) : 0.0f;
      ptx::store(ptx::global(params.slot_ids) + i, id);
      ptx::store(ptx::global(params.slot_probs) + i, prob);
    }
  }

 private:
  MOEJIT_DEVICE static int32_t own_expert(int32_t id, int32_t rank) {
    if (id < -1) return rank == 0 ? id : -1;
    const int32_t own = id - rank * kRankExperts;
    return own >= 0 && own < kRankExperts ? own : -1;
  }
};

// Tells of a backward call that has another T than its forward call, also of one without tokens.
// The call goes on, since its peers wait for what it sends, and what it computes means nothing.
template <int32_t kThreads_>
struct CompareTokens {
  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kCtasPerSm = 1;
  static constexpr int32_t kSharedBytes = 0;

  MOEJIT_DEVICE static void run(const CompareTokensParams& params) {
    has_other_tokens(params.call);
  }
};

}  // namespace moejit::device
