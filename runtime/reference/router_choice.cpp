// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/router_choice.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/router_functions.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace moejit::reference {
namespace {

// Returns an integer that is ordered as values are: NaN is the largest, and -0 equals +0.
std::uint32_t key_of(float value) {
  if (std::isnan(value)) return std::numeric_limits<std::uint32_t>::max();
  const std::uint32_t bits = bits_of(value + 0.0F);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
}

std::int64_t terms_of(const Router& router) {
  switch (router.group_score) {
    case RouterGroupScore::kMax: return 1;
    case RouterGroupScore::kTop2: return 2;
    case RouterGroupScore::kSum: return router.top_k / router.groups_kept;
  }
  return 1;
}

}  // namespace

bool is_sum_one(const Router& router) {
  return router.score == RouterScore::kSoftmax && router.normalize == RouterNormalize::kSum &&
         router.epsilon == 0.0F;
}

std::vector<float> transformed_logits(const Router& router, std::span<const float> logits) {
  std::vector<float> z(logits.begin(), logits.end());
  for (float& value : z) {
    value *= router.logit_scale;
    if (router.softcap != 0.0F) value = router_tanh(value / router.softcap) * router.softcap;
  }
  return z;
}

std::int64_t neighbors_of(const Router& router) {
  if (router.groups == 1) return (router.experts + 31) / 32;
  const std::int64_t size = router.experts / router.groups;
  std::int64_t lanes = 1;  // of a group
  while (size % (2 * lanes) == 0 && router.groups * 2 * lanes <= 32) lanes *= 2;
  return size / lanes;
}

float elementwise_score(const Router& router, float z) {
  switch (router.score) {
    case RouterScore::kSigmoid: return router_sigmoid(z);
    case RouterScore::kSqrtSoftplus: return router_sqrt_softplus(z);
    case RouterScore::kFunction: return static_cast<float>(router.function.value(z));
    case RouterScore::kSoftmax: break;
  }
  return std::numeric_limits<float>::quiet_NaN();
}

std::vector<float> expert_scores(const Router& router, std::span<const float> z) {
  std::vector<float> scores(z.size());
  if (router.score == RouterScore::kSoftmax) {
    const float inverse = 1.0F / softmax_parts(z, neighbors_of(router), scores).sum;
    for (float& score : scores) score *= inverse;
    return scores;
  }
  std::ranges::transform(z, scores.begin(),
                         [&](float value) { return elementwise_score(router, value); });
  return scores;
}

std::vector<std::int64_t> indices_of_largest(std::span<const float> values, std::int64_t count) {
  std::vector<std::uint32_t> keys(values.size());
  std::ranges::transform(values, keys.begin(), key_of);
  std::vector<std::int64_t> indices(values.size());
  std::iota(indices.begin(), indices.end(), 0);
  std::partial_sort(indices.begin(), indices.begin() + count, indices.end(),
                    [&](std::int64_t a, std::int64_t b) {
                      return keys[a] != keys[b] ? keys[a] > keys[b] : a < b;
                    });
  indices.resize(count);
  return indices;
}

std::vector<float> scores_of_groups(const Router& router, std::span<const float> order) {
  const std::size_t size = order.size() / router.groups;
  std::vector<float> scores;
  for (std::int64_t group = 0; group < router.groups; ++group) {
    const std::span<const float> members = order.subspan(group * size, size);
    const std::vector<std::int64_t> largest = indices_of_largest(members, terms_of(router));
    float score = members[largest.front()];
    for (std::size_t i = 1; i < largest.size(); ++i) score += members[largest[i]];
    scores.push_back(score);
  }
  return scores;
}

std::vector<float> choice_order(const Router& router, std::span<const float> z,
                                std::span<const float> bias) {
  std::vector<float> order =
      router.orders_by_logits ? std::vector<float>(z.begin(), z.end()) : expert_scores(router, z);
  for (std::size_t i = 0; i < bias.size(); ++i) order[i] += bias[i];
  return order;
}

std::vector<float> kept_order(const Router& router, std::vector<float> order) {
  if (router.groups == 1) return order;
  std::vector<bool> is_kept(router.groups, false);
  for (const std::int64_t group :
       indices_of_largest(scores_of_groups(router, order), router.groups_kept))
    is_kept[group] = true;
  const std::size_t size = order.size() / router.groups;
  const float fill = router.fills_with_zero ? 0.0F : -std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < order.size(); ++i)
    if (!is_kept[i / size]) order[i] = fill;
  return order;
}

namespace {

// Returns how far a kernel's order of each expert may be from the reference's, which is rounded.
std::vector<double> order_errors(const Router& router, std::span<const float> z,
                                 std::span<const float> order) {
  std::vector<double> errors(z.size(), 0.0);
  if (router.orders_by_logits) return errors;
  for (std::size_t i = 0; i < z.size(); ++i)
    errors[i] = 2.0 * router.function.value_error(z[i]) + 0x1p-23 * std::fabs(order[i]);
  return errors;
}

// Returns whether errors leave open which groups are kept.
bool is_open(const Router& router, std::span<const float> order, double error) {
  const std::vector<float> scores = scores_of_groups(router, order);
  const std::vector<std::int64_t> ranked = indices_of_largest(scores, router.groups);
  if (router.groups_kept == router.groups) return false;
  const double kept = scores[ranked[router.groups_kept - 1]];
  const double next = scores[ranked[router.groups_kept]];
  return kept - next <= 2.0 * static_cast<double>(router.top_k) * error;
}

}  // namespace

bool may_choose(const Router& router, std::span<const float> logits, std::span<const float> bias,
                std::span<const std::int64_t> ids) {
  std::vector<bool> is_chosen(router.experts, false);
  for (const std::int64_t id : ids) {
    if (id < 0 || id >= router.experts || is_chosen[id]) return false;
    is_chosen[id] = true;
  }
  const std::vector<float> z = transformed_logits(router, logits);
  const std::vector<float> exact = choice_order(router, z, bias);
  if (std::ranges::any_of(exact, [](float value) { return std::isnan(value); })) return true;
  const std::vector<double> errors = order_errors(router, z, exact);
  if (router.groups > 1 && is_open(router, exact, std::ranges::max(errors))) return true;
  const std::vector<float> order = kept_order(router, exact);
  is_chosen.assign(router.experts, false);
  for (const std::int64_t id : ids) {
    is_chosen[id] = true;
    for (std::int64_t other = 0; other < router.experts; ++other)
      if (!is_chosen[other] && order[other] - errors[other] > order[id] + errors[id]) return false;
  }
  return true;
}

}  // namespace moejit::reference
