// SPDX-License-Identifier: Apache-2.0
#pragma once

// RouterBackward: from gradients of a token's probabilities to gradients of its logits. Nothing is
// saved in forward: it reads ids and logits again. docs/router.md has the formulas.
//
// A warp takes a token at a time, and a lane a choice of it. What a choice adds goes through a row
// in shared memory, from which the lanes take their neighbors. What all experts get, by a softmax
// or a loss, is added there; only then the kernel reads all logits.

#include "moejit_device/map/call_tokens.cuh"
#include "moejit_device/map/router_formula.cuh"
#include "moejit_device/map/router_row.cuh"
#include "moejit_device/params/router_params.h"
#include "moejit_device/ptx/barrier.cuh"

namespace moejit::device {

template <typename Formula, int32_t kExperts, int32_t kTopK, int32_t kWarps, typename Logit,
          typename Id>
struct RouterBackward {
  static_assert(kTopK > 0 && kTopK <= 32, "a lane has a choice");

  using Facts = RouterFacts<Formula>;
  static constexpr int32_t kPerLane = router_experts_per_lane(kExperts, Formula::kGroups);
  using Row = RouterRow<kExperts, kPerLane, Logit>;
  static constexpr int32_t kVector = kExperts % 4 == 0 ? 4 : kExperts % 2 == 0 ? 2 : 1;
  // Whether experts get a gradient that are not chosen.
  static constexpr bool kHasWeightsOfAll = Facts::kIsSoftmax && !Facts::kIsOfChosen;
  static constexpr bool kReadsRow = kHasWeightsOfAll || Formula::kHasAux || Formula::kHasZ;
  static constexpr bool kReadsSoftmax =
      kHasWeightsOfAll || Formula::kHasZ || (Formula::kHasAux && Formula::kAveragesSoftmax);

  static constexpr int32_t kThreads = 32 * kWarps;
  static constexpr int32_t kCtasPerSm =
      router::threads_per_sm(kPerLane, Formula::kHasAux) / kThreads;
  static constexpr int32_t kRowBytes = 4 * align_up(kExperts, int32_t{4});
  static constexpr int32_t kSharedBytes = kWarps * kRowBytes;

  MOEJIT_DEVICE static void run(const RouterBackwardParams& params) {
    if (has_other_tokens(params.call)) return;
    const RouterBackward router(params);
    // Through a lane, so that the compiler knows that it is the same in all of them.
    const int32_t warp = ptx::shuffle(ptx::warp_index(), 0);
    const int64_t step = int64_t{ptx::cta_count()} * kWarps;
    int64_t token = int64_t{ptx::cta_index()} * kWarps + warp;
#pragma unroll 1
    for (; token < params.call.tokens; token += step) router.differentiate(token);
  }

 private:
  // A lane's choice. Lanes without one have id -1 and zeros.
  struct Choice {
    int32_t id = -1;
    float z = 0.0f;
    float weight = 0.0f;    // before it is normalized
    float gradient = 0.0f;  // of the weight, before it is scaled
  };

  MOEJIT_DEVICE explicit RouterBackward(const RouterBackwardParams& params)
      : params_(params), row_(ptx::shared<float>(0) + ptx::warp_index() * (kRowBytes / 4)) {
    if constexpr (Formula::kHasAux) {
      const float coefficient = ptx::load(ptx::global(params.aux_coefficient));
#pragma unroll
      for (int32_t i = 0; i < kPerLane; ++i) {
        const auto count = ptx::global(params.counts) + (Row::first_expert() + i);
        loss_gradient_[i] =
            Row::has(i) ? ptx::multiply(coefficient, static_cast<float>(ptx::load(count))) : 0.0f;
      }
    }
    if constexpr (Formula::kHasZ) {
      const float coefficient = ptx::load(ptx::global(params.z_coefficient));
      z_factor_ = ptx::add(coefficient, coefficient);
    }
  }

  MOEJIT_DEVICE void differentiate(int64_t token) const {
    const auto row = ptx::global(static_cast<const Logit*>(params_.logits)) + token * kExperts;
    float z[kPerLane];
    if constexpr (kReadsRow) {
      Row::load(row, z);
#pragma unroll
      for (int32_t i = 0; i < kPerLane; ++i)
        z[i] = Row::has(i) ? Facts::transformed(z[i]) : ptx::float_from_bits(0xff800000u);
    }
    if constexpr (kReadsSoftmax) {
      differentiate(token, row, z, SoftmaxOfRow<Row, kPerLane>(z));
    } else {
      differentiate(token, row, z, 0);
    }
  }

  // `softmax` has all logits, or is a number if nothing needs it.
  template <typename Softmax>
  MOEJIT_DEVICE void differentiate(int64_t token, ptx::GlobalPtr<const Logit> row,
                                   const float (&z)[kPerLane], const Softmax& softmax) const {
    const Choice choice = choice_of(token, row, softmax);
    const float gradient = before_normalization(choice, token * kTopK + ptx::lane_index());
    float own = 0.0f, of_all = 0.0f;
    if constexpr (Facts::kIsSoftmax) {
      const float sum = sum_of_lanes(ptx::multiply(gradient, choice.weight));
      const float shared = Facts::kIsOfChosen ? ptx::add(gradient, -sum) : gradient;
      own = ptx::multiply(choice.weight, shared);
      of_all = -sum;
    } else {
      own = ptx::multiply(gradient, Facts::slope(choice.z, choice.weight));
    }
    clear_row();
    add_choices(choice.id, Facts::of_logit(own, choice.z));
    if constexpr (kReadsRow) {
      float of_z[kPerLane] = {};
      if constexpr (Formula::kHasAux) add_scores_loss(z, softmax, of_z);
      if constexpr (kReadsSoftmax) {
        float factor = kHasWeightsOfAll ? of_all : 0.0f;
        if constexpr (Formula::kHasZ)
          factor = ptx::fused_multiply_add(z_factor_, softmax.logsumexp(), factor);
#pragma unroll
        for (int32_t i = 0; i < kPerLane; ++i)
          of_z[i] = ptx::fused_multiply_add(factor, softmax.of_lane(i), of_z[i]);
      }
#pragma unroll
      for (int32_t i = 0; i < kPerLane; ++i) of_z[i] = Facts::of_logit(of_z[i], z[i]);
      add_to_all(of_z);
    }
    store_row(ptx::global(static_cast<Logit*>(params_.dlogits)) + token * kExperts);
  }

  template <typename Softmax>
  MOEJIT_DEVICE Choice choice_of(int64_t token, ptx::GlobalPtr<const Logit> row,
                                 const Softmax& softmax) const {
    Choice choice;
    const int64_t at = token * kTopK + ptx::lane_index();
    if (ptx::lane_index() < kTopK) {
      const Id id = ptx::load(ptx::global(static_cast<const Id*>(params_.topk_ids)) + at);
      if (id >= 0 && id < kExperts) choice.id = static_cast<int32_t>(id);
    }
    const bool has_expert = choice.id >= 0;
    if (has_expert) {
      choice.z = Facts::transformed(Row::load_one(row + choice.id));
      choice.gradient = gradient_of(token, at, choice.id);
    }
    if constexpr (Facts::kIsOfChosen) {
      const float largest =
          max_of_lanes<kTopK>(has_expert ? choice.z : ptx::float_from_bits(0xff800000u));
      choice.weight = softmax_of_lanes<kTopK>(choice.z, largest, has_expert);
    } else if constexpr (Facts::kIsSoftmax) {
      choice.weight = softmax.of_logit(choice.z);
    } else {
      choice.weight = Facts::score(choice.z);
    }
    if (!has_expert) choice.weight = 0.0f;
    return choice;
  }

  // The gradient of a choice's weight times `scale` and its expert's factor.
  MOEJIT_DEVICE float gradient_of(int64_t token, int64_t at, int32_t id) const {
    constexpr int32_t kRouted = kExperts - Formula::kZeroExperts;
    float gradient = 0.0f;
    if (Formula::kZeroExperts > 0 && id >= kRouted) {
      gradient = ptx::load(ptx::global(params_.dzero_probs) + token);
    } else {
      gradient = ptx::load(ptx::global(params_.dprobs) + at);
    }
    if constexpr (Formula::kScale != 1.0f) gradient = ptx::multiply(gradient, Formula::kScale);
    return gradient;
  }

  // The gradient of the weight before it is normalized. Stores the gradient of the expert's factor.
  MOEJIT_DEVICE float before_normalization(const Choice& choice, int64_t at) const {
    float divisor = 1.0f, sum = 0.0f;
    if constexpr (Facts::kNormalizes) {
      sum = sum_of_lanes(choice.weight);
      divisor = Formula::kNormalize == RouterNormalize::kSum
                    ? ptx::add(sum, Formula::kEpsilon)
                    : ptx::max_or_nan(sum, Formula::kEpsilon);
    }
    float gradient = choice.gradient;
    if constexpr (Formula::kHasExpertScale) {
      const float weight = Facts::kNormalizes ? ptx::divide(choice.weight, divisor) : choice.weight;
      if (ptx::lane_index() < kTopK)
        ptx::store(ptx::global(params_.dexpert_scale) + at,
                   choice.id >= 0 ? ptx::multiply(gradient, weight) : 0.0f);
      if (choice.id >= 0)
        gradient =
            ptx::multiply(gradient, ptx::load(ptx::global(params_.expert_scale) + choice.id));
    }
    if constexpr (Facts::kNormalizes) {
      const float dot = sum_of_lanes(ptx::multiply(gradient, choice.weight));
      const bool is_floor =
          Formula::kNormalize == RouterNormalize::kFloor && sum < Formula::kEpsilon;
      if (!is_floor) gradient = ptx::add(gradient, -ptx::divide(dot, divisor));
      gradient = ptx::divide(gradient, divisor);
    }
    return gradient;
  }

  // Calls visit(e) for the first of each kVector experts of the row, which lanes take in turn.
  template <typename Visit>
  MOEJIT_DEVICE static void for_each_vector(Visit visit) {
#pragma unroll
    for (int32_t first = 0; first < kExperts; first += 32 * kVector) {
      const int32_t e = first + ptx::lane_index() * kVector;
      if (kExperts % (32 * kVector) == 0 || e < kExperts) visit(e);
    }
  }

  MOEJIT_DEVICE void clear_row() const {
    constexpr float zeros[kVector] = {};
    for_each_vector([&](int32_t e) { LogitVector<float, kVector>::store(row_ + e, zeros); });
    ptx::sync_warp();
  }

  // Adds the lanes' values of choices. Ids that the caller gives may be equal: their values are
  // added one after the other.
  MOEJIT_DEVICE void add_choices(int32_t id, float value) const {
    if constexpr (Formula::kHasGivenIds) {
#pragma unroll 1
      for (int32_t k = 0; k < kTopK; ++k) {
        if (ptx::lane_index() == k && id >= 0)
          ptx::store(row_ + id, ptx::add(ptx::load(row_ + id), value));
        ptx::sync_warp();
      }
    } else {
      if (id >= 0) ptx::store(row_ + id, value);
      ptx::sync_warp();
    }
  }

  MOEJIT_DEVICE void add_to_all(const float (&value)[kPerLane]) const {
    using Own = LogitVector<float, router::experts_per_access(kExperts, kPerLane, 4)>;
    const auto own = row_ + Row::first_expert();
#pragma unroll
    for (int32_t i = 0; i < kPerLane; i += Own::kCount) {
      if (!Row::has(i)) continue;
      float sum[Own::kCount];
      Own::load(own + i, sum);
#pragma unroll
      for (int32_t j = 0; j < Own::kCount; ++j) sum[j] = ptx::add(sum[j], value[i + j]);
      Own::store(own + i, sum);
    }
    ptx::sync_warp();
  }

  MOEJIT_DEVICE void store_row(ptx::GlobalPtr<Logit> to) const {
    for_each_vector([&](int32_t e) {
      float value[kVector];
      LogitVector<float, kVector>::load(row_ + e, value);
      LogitVector<Logit, kVector>::store(to + e, value);
    });
  }

  // Adds what the load-balancing loss gives the gradients of all z.
  template <typename Softmax>
  MOEJIT_DEVICE void add_scores_loss(const float (&z)[kPerLane], const Softmax& softmax,
                                     float (&of_z)[kPerLane]) const {
    float share[kPerLane], slope[kPerLane], product[kPerLane];
    if constexpr (Formula::kAveragesSoftmax) {
#pragma unroll
      for (int32_t i = 0; i < kPerLane; ++i) share[i] = slope[i] = softmax.of_lane(i);
    } else {
#pragma unroll
      for (int32_t i = 0; i < kPerLane; ++i) share[i] = Row::has(i) ? Facts::score(z[i]) : 0.0f;
      const float inverse = ptx::reciprocal(ptx::add(sum_of_row(share), 1e-20f));
#pragma unroll
      for (int32_t i = 0; i < kPerLane; ++i) {
        slope[i] = ptx::multiply(Facts::slope(z[i], share[i]), inverse);
        share[i] = ptx::multiply(share[i], inverse);
      }
    }
#pragma unroll
    for (int32_t i = 0; i < kPerLane; ++i) product[i] = ptx::multiply(loss_gradient_[i], share[i]);
    const float sum = sum_of_row(product);
#pragma unroll
    for (int32_t i = 0; i < kPerLane; ++i)
      of_z[i] = ptx::multiply(ptx::add(loss_gradient_[i], -sum), slope[i]);
  }

  const RouterBackwardParams& params_;
  ptx::SharedPtr<float> row_;  // of this warp's token
  float loss_gradient_[kPerLane];
  float z_factor_ = 0.0f;
};

}  // namespace moejit::device
