// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/router.h"

#include "runtime/reference/router_choice.h"
#include "runtime/reference/router_functions.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace moejit::reference {
namespace {

using Ids = std::vector<std::int64_t>;

// Returns the weights of a token's choices before they are normalized; 0 of no choice.
std::vector<float> raw_weights(const Router& router, std::span<const float> z, const Ids& ids) {
  std::vector<float> weights(ids.size(), 0.0F);
  if (router.score == RouterScore::kSoftmax && (router.is_after || is_sum_one(router))) {
    std::vector<float> chosen;
    for (const std::int64_t id : ids)
      chosen.push_back(id < 0 ? -std::numeric_limits<float>::infinity() : z[id]);
    if (std::ranges::all_of(ids, [](std::int64_t id) { return id < 0; })) return weights;
    const float inverse = 1.0F / softmax_parts(chosen, 1, weights).sum;
    for (float& weight : weights) weight *= inverse;
    return weights;
  }
  const bool is_softmax = router.score == RouterScore::kSoftmax;
  const std::vector<float> scores = is_softmax ? expert_scores(router, z) : std::vector<float>();
  for (std::size_t k = 0; k < ids.size(); ++k)
    if (ids[k] >= 0)
      weights[k] = is_softmax ? scores[ids[k]] : elementwise_score(router, z[ids[k]]);
  return weights;
}

std::vector<float> token_weights(const Router& router, std::span<const float> z, const Ids& ids,
                                 std::span<const float> expert_scale) {
  std::vector<float> weights = raw_weights(router, z, ids);
  if (router.normalize != RouterNormalize::kNone && !is_sum_one(router)) {
    const float sum = sum_choices(weights);
    // A NaN sum stays one.
    const float divisor = router.normalize == RouterNormalize::kSum ? sum + router.epsilon
                          : sum < router.epsilon                    ? router.epsilon
                                                                    : sum;
    for (float& weight : weights) weight /= divisor;
  }
  for (std::size_t k = 0; k < ids.size(); ++k) {
    weights[k] *= router.scale;
    if (ids[k] < 0) weights[k] = 0.0F;
    if (!expert_scale.empty() && ids[k] >= 0) weights[k] *= expert_scale[ids[k]];
  }
  return weights;
}

// Adds what a token does to the sums of the losses.
void add_losses(const Router& router, std::span<const float> z, RoutedLogits& result) {
  if (!router.has_aux && !router.has_z) return;
  std::vector<float> shares(z.size());
  const SoftmaxParts parts = softmax_parts(z, neighbors_of(router), shares);
  if (router.has_z && !std::isnan(parts.sum)) {
    const float lse = log_sum_exp(parts);
    result.z_sum += std::llrint(std::fmin(lse * lse, 0x1p18F) * 0x1p24F);
  }
  if (!router.has_aux) return;
  float sum = parts.sum;
  if (!router.averages_softmax) {
    shares = expert_scores(router, z);
    sum = sum_experts(shares, neighbors_of(router)) + 1e-20F;
  }
  const float inverse = 1.0F / sum;
  if (!(inverse > 0.0F)) return;
  for (std::size_t i = 0; i < shares.size(); ++i)
    result.score_sums[i] += std::llrint(shares[i] * inverse * 0x1p32F);
}

class RouterLoop {
 public:
  RouterLoop(const Router& router, const RouterInputs& inputs) : router_(router), inputs_(inputs) {
    result_.counts.assign(router.experts, 0);
    if (router.counts_unbiased) result_.unbiased_counts.assign(router.experts, 0);
    if (router.has_aux) result_.score_sums.assign(router.experts, 0);
  }

  RoutedLogits run() && {
    const std::int64_t tokens = std::ssize(inputs_.logits) / router_.experts;
    for (std::int64_t token = 0; token < tokens; ++token) add_token(token);
    return std::move(result_);
  }

 private:
  void add_token(std::int64_t token) {
    const std::vector<float> z = transformed_logits(
        router_, inputs_.logits.subspan(token * router_.experts, router_.experts));
    const Ids ids = inputs_.ids.empty() ? choice(z) : given(token);
    const std::vector<float> weights = token_weights(router_, z, ids, inputs_.expert_scale);
    if (std::ranges::any_of(weights, [](float weight) { return !std::isfinite(weight); }))
      result_.status |= kRouterBadLogit;
    add_choices(ids, weights);
    if (router_.counts_unbiased)
      for (const std::int64_t id : indices_of_largest(z, router_.top_k))
        ++result_.unbiased_counts[id];
    add_losses(router_, z, result_);
  }

  Ids choice(std::span<const float> z) {
    const std::vector<float> order = kept_order(router_, choice_order(router_, z, inputs_.bias));
    Ids ids = indices_of_largest(order, router_.top_k);
    if (std::isnan(order[ids.front()])) result_.status |= kRouterBadLogit;
    return ids;
  }

  Ids given(std::int64_t token) {
    const auto row = inputs_.ids.subspan(token * router_.top_k, router_.top_k);
    Ids ids(row.begin(), row.end());
    for (std::int64_t& id : ids) {
      if (id >= -1 && id < router_.experts) continue;
      id = -1;
      result_.status |= kRouterBadExpertId;
    }
    return ids;
  }

  void add_choices(const Ids& ids, std::span<const float> weights) {
    const std::int64_t routed = router_.experts - router_.zero_experts;
    std::vector<float> zero_weights(ids.size(), 0.0F);
    for (std::size_t k = 0; k < ids.size(); ++k) {
      if (ids[k] >= 0) ++result_.counts[ids[k]];
      const bool is_zero = ids[k] >= routed;
      result_.chosen_ids.push_back(ids[k]);
      result_.topk_ids.push_back(is_zero ? -1 : ids[k]);
      result_.topk_probs.push_back(is_zero ? 0.0F : weights[k]);
      if (is_zero) zero_weights[k] = weights[k];
    }
    result_.zero_probs.push_back(sum_choices(zero_weights));
  }

  const Router& router_;
  const RouterInputs& inputs_;
  RoutedLogits result_;
};

}  // namespace

RoutedLogits route_logits(const Router& router, const RouterInputs& inputs) {
  return RouterLoop(router, inputs).run();
}

}  // namespace moejit::reference
