// SPDX-License-Identifier: Apache-2.0
#pragma once

// Shared experts as choices of a token: they have numbers behind the experts of the token's rank,
// and stand behind the router's choices. Kernels that route and move rows know nothing of them.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/map/shared_choices.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kRanks = 1;
//   constexpr int32_t kRankExperts = 256;
//   ...
//   using Kernel = SharedChoices<kRanks, kRankExperts, kTopK, kSharedExperts, kHasGate, kThreads>;

#include "moejit_device/core/probability.cuh"
#include "moejit_device/map/call_tokens.cuh"
#include "moejit_device/params/shared_choices_params.h"

namespace moejit::device {

// Calls visit(token, place) for `count` places of each token. A thread takes a place.
template <typename Visit>
MOEJIT_DEVICE void for_each_place(int64_t tokens, int32_t count, Visit visit) {
  const int64_t places = tokens * count;
  const int64_t threads = int64_t{ptx::cta_count()} * ptx::thread_count();
  int64_t place = int64_t{ptx::cta_index()} * ptx::thread_count() + ptx::thread_index();
  for (; place < places; place += threads)
    visit(place / count, static_cast<int32_t>(place % count));
}

// Copies the router's choices and appends choices of the shared experts, whose probability is 1 or
// the caller's. Id and Prob are the types of what the caller gives.
template <int32_t kRanks, int32_t kRankExperts, int32_t kTopK, int32_t kSharedExperts,
          bool kHasGate, int32_t kThreads_, typename Id = int32_t, typename Prob = float>
struct SharedChoices {
  static_assert(kRanks > 0 && kRankExperts > 0 && kTopK > 0 && kSharedExperts > 0,
                "a token has experts of both kinds");

  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kCtasPerSm = 1024 / kThreads;
  static constexpr int32_t kSharedBytes = 0;

  MOEJIT_DEVICE static void run(const SharedChoicesParams& params) {
    constexpr int32_t kAll = kTopK + kSharedExperts;
    for_each_place(params.tokens, kAll, [&](int64_t token, int32_t place) {
      const bool is_routed = place < kTopK;
      const int64_t choice = token * kTopK + place;
      int32_t id = first_shared(params.rank) + place - kTopK;
      float prob = 1.0f;
      if (is_routed) {
        id = renumbered(ptx::load(ptx::global(static_cast<const Id*>(params.topk_ids)) + choice));
        prob = load_prob(ptx::global(static_cast<const Prob*>(params.topk_probs)) + choice);
      } else if constexpr (kHasGate) {
        prob = load_prob(ptx::global(static_cast<const Prob*>(params.shared_probs)) + token);
      }
      ptx::store(ptx::global(params.all_ids) + token * kAll + place, id);
      ptx::store(ptx::global(params.all_probs) + token * kAll + place, prob);
    });
  }

 private:
  static constexpr int32_t kHeld = kRankExperts + kSharedExperts;  // experts of a rank

  MOEJIT_DEVICE static int32_t first_shared(int64_t rank) {
    return static_cast<int32_t>(rank) * kHeld + kRankExperts;
  }

  // Ids that are no expert stay so: -1, and mistakes below or above the experts.
  MOEJIT_DEVICE static int32_t renumbered(Id id) {
    if (id < 0) return id == -1 ? -1 : -2;
    if (id >= kRanks * kRankExperts) return kRanks * kHeld;
    const auto expert = static_cast<int32_t>(id);
    return expert / kRankExperts * kHeld + expert % kRankExperts;
  }
};

// Parts the gradients again. The gradient of a token's probability of all shared experts is the
// fp32 sum of theirs in ascending order, from 0. Prob is the type of the results, to which each is
// rounded once.
template <int32_t kTopK, int32_t kSharedExperts, bool kHasGate, int32_t kThreads_,
          typename Prob = float>
struct SharedDprobs {
  static_assert(kTopK > 0 && kSharedExperts > 0, "a token has experts of both kinds");

  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kCtasPerSm = 1024 / kThreads;
  static constexpr int32_t kSharedBytes = 0;

  MOEJIT_DEVICE static void run(const SharedDprobsParams& params) {
    if (has_other_tokens(params.call)) return;
    for_each_place(params.tokens, kTopK + kHasGate, [&](int64_t token, int32_t place) {
      const auto row = ptx::global(params.all_dprobs) + token * (kTopK + kSharedExperts);
      if (place < kTopK) {
        store_prob(ptx::global(static_cast<Prob*>(params.dprobs)) + token * kTopK + place,
                   ptx::load(row + place));
      } else {
        store_prob(ptx::global(static_cast<Prob*>(params.dshared_probs)) + token, sum(row + kTopK));
      }
    });
  }

 private:
  MOEJIT_DEVICE static float sum(ptx::GlobalPtr<const float> shared) {
    float sum = 0.0f;
#pragma unroll
    for (int32_t i = 0; i < kSharedExperts; ++i) sum = ptx::add(sum, ptx::load(shared + i));
    return sum;
  }
};

}  // namespace moejit::device
