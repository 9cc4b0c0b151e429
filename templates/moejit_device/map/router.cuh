// SPDX-License-Identifier: Apache-2.0
#pragma once

// Router: from logits to the experts of each token, their probabilities, and sums over tokens that
// losses need. docs/router.md is the contract, with every rounding.
//
// A warp takes a token at a time and holds its logits in registers. A choice takes one maximum over
// the lanes; the lowest lane that holds it has the expert. Scores are made of the chosen logits,
// one in each lane, and of all logits only if the formula needs them.
//
// Sums over tokens are sums of integers, so that their order does not matter: counts in a histogram
// in shared memory, the others in registers until the CTA has no token left.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/map/router.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kExperts = 128;
//   constexpr int32_t kTopK = 8;
//   constexpr int32_t kWarps = 16;
//
//   struct Formula : UsualRouterFormula {
//     static constexpr bool kOrdersLogits = true;
//     static constexpr auto kNormalize = RouterNormalize::kSum;
//   };
//
//   using Kernel = Router<Formula, kExperts, kTopK, kWarps, float, int32_t>;
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_router_..., RouterParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/map/router_formula.cuh"
#include "moejit_device/map/router_groups.cuh"
#include "moejit_device/map/router_row.cuh"
#include "moejit_device/params/router_params.h"
#include "moejit_device/params/status_bits.h"
#include "moejit_device/ptx/barrier.cuh"

namespace moejit::device {

template <typename Formula, int32_t kExperts, int32_t kTopK, int32_t kWarps, typename Logit,
          typename Id>
struct Router {
  static_assert(kExperts > 0 && kExperts <= 1024, "lanes number their experts in a byte");
  static_assert(kTopK > 0 && kTopK <= 32 && kTopK <= kExperts, "a lane has a choice");
  static_assert(kWarps > 0 && kWarps <= 32, "a CTA has 1 to 32 warps");

  using Facts = RouterFacts<Formula>;
  static constexpr int32_t kPerLane = router_experts_per_lane(kExperts, Formula::kGroups);
  using Row = RouterRow<kExperts, kPerLane, Logit>;
  using Candidates = RouterCandidates<kPerLane>;

  static constexpr int32_t kThreads = 32 * kWarps;
  static constexpr int32_t kCtasPerSm =
      router::threads_per_sm(kPerLane, Formula::kHasAux) / kThreads;
  static constexpr int32_t kHistograms = Formula::kCountsUnbiased ? 2 : 1;
  // In shared memory: each warp's score sums and squared logsumexps, ids, and histograms.
  static constexpr int32_t kSumsOfWarp =
      (Formula::kHasAux ? kExperts : 0) + (Formula::kHasZ ? 1 : 0);
  static constexpr int32_t kIdsByte = 8 * kWarps * kSumsOfWarp;
  static constexpr int32_t kHistogramByte = kIdsByte + 4 * kWarps * kTopK;
  static constexpr int32_t kSharedBytes = kHistogramByte + 4 * kHistograms * kExperts;

  MOEJIT_DEVICE static void run(const RouterParams& params) {
    Router router(params);
    router.clear();
    // Through a lane, so that the compiler knows that it is the same in all of them.
    const int32_t warp = ptx::shuffle(ptx::warp_index(), 0);
    const int64_t step = int64_t{ptx::cta_count()} * kWarps;
    int64_t token = int64_t{ptx::cta_index()} * kWarps + warp;
#pragma unroll 1
    for (; token < params.tokens; token += step) router.route(token);
    router.add_sums();
  }

 private:
  MOEJIT_DEVICE explicit Router(const RouterParams& params)
      : params_(params),
        ids_(ptx::shared<int32_t>(kIdsByte) + ptx::warp_index() * kTopK),
        counts_(ptx::shared<int32_t>(kHistogramByte)) {
    if constexpr (Formula::kHasBias)
      RouterRow<kExperts, kPerLane, float>::load(ptx::global(params.router_bias), bias_);
  }

  MOEJIT_DEVICE void clear() const {
    for (int32_t i = ptx::thread_index(); i < kHistograms * kExperts; i += kThreads)
      ptx::store(counts_ + i, 0);
    ptx::sync_cta();
  }

  MOEJIT_DEVICE void route(int64_t token) {
    const auto row = ptx::global(static_cast<const Logit*>(params_.logits)) + token * kExperts;
    float z[kPerLane];
    Row::load(row, z);
#pragma unroll
    for (int32_t i = 0; i < kPerLane; ++i)
      z[i] = Row::has(i) ? Facts::transformed(z[i]) : ptx::float_from_bits(0xff800000u);
    if constexpr (Facts::kHasSoftmaxOfAll) {
      const SoftmaxOfRow<Row, kPerLane> softmax(z);
      if constexpr (Formula::kHasZ) add_logsumexp(softmax);
      route(token, row, z, softmax);
    } else {
      route(token, row, z, 0);
    }
  }

  // `softmax` has all logits, or is a number if nothing needs it.
  template <typename Softmax>
  MOEJIT_DEVICE void route(int64_t token, ptx::GlobalPtr<const Logit> row,
                           const float (&z)[kPerLane], const Softmax& softmax) {
    if constexpr (Formula::kCountsUnbiased) count_unbiased(z);
    float score[kPerLane];
    if constexpr (Facts::kOrdersScores || (Formula::kHasAux && !Formula::kAveragesSoftmax)) {
#pragma unroll
      for (int32_t i = 0; i < kPerLane; ++i) {
        if constexpr (Facts::kIsSoftmax) {
          score[i] = softmax.of_lane(i);
        } else {
          score[i] = Facts::score(z[i]);
        }
      }
    }
    if constexpr (Formula::kHasAux) add_scores(score, softmax);
    bool is_bad = false;
    int32_t id = -1;
    if constexpr (Formula::kHasGivenIds) {
      id = given_id(token);
    } else {
      uint32_t highest;
      if constexpr (Facts::kOrdersScores) {
        highest = choose_experts(score);
      } else {
        highest = choose_experts(z);
      }
      is_bad = highest == kNanKey;
      ptx::sync_warp();
      if (is_choice()) id = ptx::load(ids_ + ptx::lane_index());
      ptx::sync_warp();  // every lane has read before the next token's choice
    }
    const float weight = weight_of(row, id, softmax);
    store(token, id, weight);
    is_bad |= !(ptx::absolute(weight) <= 0x1.fffffep127f);
    if (ptx::ballot(is_bad) != 0u) set_status(kStatusBadLogit);
  }

  MOEJIT_DEVICE static bool is_choice() { return ptx::lane_index() < kTopK; }

  MOEJIT_DEVICE void set_status(uint32_t bits) const {
    const auto status = ptx::global(params_.status);
    if (status && ptx::lane_index() == 0) ptx::atomic_or(status, bits);
  }

  // Leaves the chosen experts in ids_. Returns the highest key of all experts.
  MOEJIT_DEVICE uint32_t choose_experts(const float (&order)[kPerLane]) const {
    uint32_t key[kPerLane];
#pragma unroll
    for (int32_t i = 0; i < kPerLane; ++i) {
      const float value = Formula::kHasBias ? ptx::add(order[i], bias_[i]) : order[i];
      key[i] = Row::has(i) ? key_of(value) : kNoKey;
    }
    Candidates candidates(key);
    if constexpr (Formula::kGroups > 1)
      RouterGroups<Formula, Row::kLanes / Formula::kGroups>::keep(candidates);
    return choose<kTopK>(candidates, [&](int32_t i, int32_t slot) {
      ptx::store(ids_ + i, Row::first_expert() + slot);
    });
  }

  MOEJIT_DEVICE void count_unbiased(const float (&z)[kPerLane]) const {
    uint32_t key[kPerLane];
#pragma unroll
    for (int32_t i = 0; i < kPerLane; ++i) key[i] = Row::has(i) ? key_of(z[i]) : kNoKey;
    choose<kTopK>(Candidates(key), [&](int32_t, int32_t slot) {
      ptx::atomic_add(counts_ + (kExperts + Row::first_expert() + slot), 1);
    });
  }

  // An id that is no expert is -1.
  MOEJIT_DEVICE int32_t given_id(int64_t token) const {
    if (!is_choice()) return -1;
    const auto ids = ptx::global(static_cast<const Id*>(params_.topk_ids));
    const Id id = ptx::load(ids + (token * kTopK + ptx::lane_index()));
    if (id >= 0 && id < kExperts) return static_cast<int32_t>(id);
    const auto status = ptx::global(params_.status);
    if (id != -1 && status) ptx::atomic_or(status, kStatusBadExpertId);
    return -1;
  }

  // Each lane's probability of its choice; 0 without one.
  template <typename Softmax>
  MOEJIT_DEVICE float weight_of(ptx::GlobalPtr<const Logit> row, int32_t id,
                                const Softmax& softmax) const {
    const bool has_expert = id >= 0;
    const float z = has_expert ? Facts::transformed(Row::load_one(row + id)) : 0.0f;
    float weight = 0.0f;
    if constexpr (Facts::kIsOfChosen) {
      weight = softmax_of_lanes<kTopK>(z, largest_choice(z, has_expert), has_expert);
    } else if constexpr (Facts::kIsSoftmax) {
      weight = softmax.of_logit(z);
    } else {
      weight = Facts::score(z);
    }
    if (!has_expert) weight = 0.0f;
    if constexpr (Facts::kNormalizes) {
      const float sum = sum_of_lanes<kTopK>(weight);
      weight = ptx::divide(weight, Formula::kNormalize == RouterNormalize::kSum
                                       ? ptx::add(sum, Formula::kEpsilon)
                                       : ptx::max_or_nan(sum, Formula::kEpsilon));
    }
    if constexpr (Formula::kScale != 1.0f) weight = ptx::multiply(weight, Formula::kScale);
    if constexpr (Formula::kHasExpertScale) {
      if (has_expert)
        weight = ptx::multiply(weight, ptx::load(ptx::global(params_.expert_scale) + id));
    }
    return has_expert ? weight : 0.0f;
  }

  // The largest logit of the choices. Where logits order them, it is the first one.
  MOEJIT_DEVICE static float largest_choice(float z, bool has_expert) {
    if constexpr (Formula::kOrdersLogits && !Formula::kHasBias && !Formula::kHasGivenIds &&
                  Formula::kGroups == 1) {
      return ptx::shuffle(z, 0);
    } else {
      return max_of_lanes<kTopK>(has_expert ? z : ptx::float_from_bits(0xff800000u));
    }
  }

  MOEJIT_DEVICE void store(int64_t token, int32_t id, float weight) const {
    constexpr int32_t kRouted = kExperts - Formula::kZeroExperts;
    const bool is_zero = Formula::kZeroExperts > 0 && id >= kRouted;
    const int64_t at = token * kTopK + ptx::lane_index();
    if constexpr (Formula::kZeroExperts > 0) {
      const float sum = sum_of_lanes<kTopK>(is_zero ? weight : 0.0f);
      if (ptx::lane_index() == 0) ptx::store(ptx::global(params_.zero_probs) + token, sum);
      if (is_choice()) {
        ptx::store(ptx::global(static_cast<Id*>(params_.chosen_ids)) + at, static_cast<Id>(id));
      }
    }
    if (!is_choice()) return;
    if constexpr (!Formula::kHasGivenIds) {
      ptx::store(ptx::global(static_cast<Id*>(params_.topk_ids)) + at,
                 static_cast<Id>(is_zero ? -1 : id));
    }
    ptx::store(ptx::global(params_.topk_probs) + at, is_zero ? 0.0f : weight);
    if (id >= 0) ptx::atomic_add(counts_ + id, 1);
  }

  // Adds scores in units of 2^-32, unless they have no sum to be divided by.
  template <typename Softmax>
  MOEJIT_DEVICE void add_scores(const float (&score)[kPerLane], const Softmax& softmax) {
    float own[kPerLane];
    float inverse;
    if constexpr (Formula::kAveragesSoftmax) {
      inverse = softmax.inverse;
#pragma unroll
      for (int32_t i = 0; i < kPerLane; ++i) own[i] = softmax.power[i];
    } else {
#pragma unroll
      for (int32_t i = 0; i < kPerLane; ++i) own[i] = Row::has(i) ? score[i] : 0.0f;
      inverse = ptx::reciprocal(ptx::add(sum_of_row(own), 1e-20f));
    }
    if (!(inverse > 0.0f)) return;
#pragma unroll
    for (int32_t i = 0; i < kPerLane; ++i)
      score_sums_[i] += ptx::nearest_u64(ptx::multiply(ptx::multiply(own[i], inverse), 0x1p32f));
  }

  template <typename Softmax>
  MOEJIT_DEVICE void add_logsumexp(const Softmax& softmax) {
    if (softmax.sum != softmax.sum) return;
    const float lse = softmax.logsumexp();
    const float square = ptx::multiply(lse, lse);
    z_sum_ += ptx::nearest_u64(ptx::multiply(smaller(square, 0x1p18f), 0x1p24f));
  }

  // Adds the CTA's sums to those in global memory.
  MOEJIT_DEVICE void add_sums() const {
    const auto own = ptx::shared<uint64_t>(0) + ptx::warp_index() * kSumsOfWarp;
    if constexpr (Formula::kHasAux) {
#pragma unroll
      for (int32_t i = 0; i < kPerLane; ++i)
        if (Row::has(i)) ptx::store(own + (Row::first_expert() + i), score_sums_[i]);
    }
    if constexpr (Formula::kHasZ) {
      if (ptx::lane_index() == 0) ptx::store(own + (kSumsOfWarp - 1), z_sum_);
    }
    ptx::sync_cta();
    add_histogram(params_.counts, 0);
    if constexpr (Formula::kCountsUnbiased) add_histogram(params_.unbiased_counts, kExperts);
    for (int32_t i = ptx::thread_index(); i < kSumsOfWarp; i += kThreads) {
      uint64_t sum = 0;
#pragma unroll
      for (int32_t warp = 0; warp < kWarps; ++warp)
        sum += ptx::load(ptx::shared<uint64_t>(0) + (warp * kSumsOfWarp + i));
      const bool is_score = Formula::kHasAux && i < kExperts;
      const auto to = is_score ? ptx::global(params_.score_sums) + i : ptx::global(params_.z_sum);
      if (sum != 0) ptx::atomic_add(to, sum);
    }
  }

  MOEJIT_DEVICE void add_histogram(int32_t* counts, int32_t first) const {
    if (counts == nullptr) return;
    for (int32_t e = ptx::thread_index(); e < kExperts; e += kThreads) {
      const int32_t count = ptx::load(counts_ + (first + e));
      if (count != 0) ptx::atomic_add(ptx::global(counts) + e, count);
    }
  }

  const RouterParams& params_;
  ptx::SharedPtr<int32_t> ids_;     // of this warp's token
  ptx::SharedPtr<int32_t> counts_;  // histograms over the experts
  float bias_[kPerLane];
  uint64_t score_sums_[kPerLane] = {};
  uint64_t z_sum_ = 0;
};

}  // namespace moejit::device
