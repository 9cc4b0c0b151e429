// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

// Routers as docs/router.md defines them. Experts number A, zero experts among them; a token has K
// choices.
namespace moejit::reference {

enum class RouterScore { kSoftmax, kSigmoid, kSqrtSoftplus, kFunction };
enum class RouterGroupScore { kMax, kTop2, kSum };
enum class RouterNormalize { kNone, kSum, kFloor };

// A score that the description gives by a formula, in double.
struct ScoreFunction {
  std::function<double(double z)> value;
  std::function<double(double z)> slope;
  // How far a kernel's value and slope may be from these.
  std::function<double(double z)> value_error;
  std::function<double(double z)> slope_error;
};

struct Router {
  std::int64_t experts = 0;       // A
  std::int64_t zero_experts = 0;  // the last of them
  std::int64_t top_k = 0;         // K, at most 32
  RouterScore score = RouterScore::kSoftmax;
  ScoreFunction function = {};  // of kFunction
  bool is_after = false;        // whether scores are made of the chosen alone
  bool orders_by_logits = true;
  std::int64_t groups = 1;
  std::int64_t groups_kept = 1;
  RouterGroupScore group_score = RouterGroupScore::kTop2;
  bool fills_with_zero = false;  // else with -inf
  RouterNormalize normalize = RouterNormalize::kNone;
  float epsilon = 0.0F;
  float scale = 1.0F;
  float logit_scale = 1.0F;
  float softcap = 0.0F;  // 0: none
  bool has_aux = false;
  bool counts_unbiased = false;
  bool averages_softmax = true;  // else scores divided by their sum
  bool has_z = false;
};

// What a router reads. Spans that it does not need are empty.
struct RouterInputs {
  std::span<const float> logits;        // [T, A]
  std::span<const float> bias;          // [A]
  std::span<const float> expert_scale;  // [A]
  std::span<const std::int64_t> ids;    // [T, K]: the choice, if the caller brings it
};

// Bits of RoutedLogits::status.
inline constexpr std::uint32_t kRouterBadExpertId = 1U << 0;
inline constexpr std::uint32_t kRouterBadLogit = 1U << 5;

// What a router writes. Sums are of these tokens alone.
struct RoutedLogits {
  std::vector<std::int64_t> chosen_ids;       // [T, K], -1: no choice
  std::vector<std::int64_t> topk_ids;         // [T, K], zero experts as -1
  std::vector<float> topk_probs;              // [T, K]
  std::vector<float> zero_probs;              // [T]
  std::vector<std::int32_t> counts;           // [A]
  std::vector<std::int32_t> unbiased_counts;  // [A], if they are counted
  std::vector<std::int64_t> score_sums;       // [A], in units of 2^-32
  std::int64_t z_sum = 0;                     // in units of 2^-24
  std::uint32_t status = 0;
};

// Computes a router in fp32, every rounding as docs/router.md states it. A score of a function is
// rounded once, so kernels may differ.
RoutedLogits route_logits(const Router& router, const RouterInputs& inputs);

// Returns whether `ids` [K] are a choice that a kernel with errors of its score function may make
// of a token's logits [A]. They are different experts. None comes after or is left out for one
// whose order is lower by more than the errors. If errors leave open which groups are kept, any
// different experts are accepted.
bool may_choose(const Router& router, std::span<const float> logits, std::span<const float> bias,
                std::span<const std::int64_t> ids);

// What the gradient of a router reads beside RouterInputs, whose ids are the choice, with the ids
// of zero experts.
struct RouterGradientInputs {
  std::span<const float> dprobs;         // [T, K]
  std::span<const float> dzero_probs;    // [T], if there are zero experts
  std::span<const std::int32_t> counts;  // [A], if there is a load-balancing loss
  float aux_coefficient = 0.0F;
  float z_coefficient = 0.0F;
};

// Gradients in double, before they are rounded, and how far a kernel's fp32 value may be from each.
struct RouterGradients {
  std::vector<double> dlogits, dlogits_bounds;              // [T, A]
  std::vector<double> dexpert_scale, dexpert_scale_bounds;  // [T, K], if there are such scales
};

RouterGradients router_backward(const Router& router, const RouterInputs& inputs,
                                const RouterGradientInputs& gradients);

}  // namespace moejit::reference
