// SPDX-License-Identifier: Apache-2.0
// The reference of routers against formulas of its own in double, written as plainly as possible,
// and against their differences.
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/router.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>

namespace moejit::reference {
namespace {

using Numbers = std::vector<double>;

struct NamedRouter {
  std::string_view name;
  Router router;
  bool has_bias = false;
  bool has_expert_scale = false;
};

constexpr std::int64_t kRouterExperts = 16, kRouterTopK = 4, kRouterTokens = 6;

// The kinds of routers that docs/router.md lists, with sums of losses where others have none.
std::vector<NamedRouter> routers() {
  const Router softmax{.experts = kRouterExperts, .top_k = kRouterTopK};
  Router normalized = softmax;
  normalized.normalize = RouterNormalize::kSum;
  normalized.has_aux = normalized.has_z = true;
  Router after = softmax;
  after.is_after = true;
  Router grouped = softmax;
  grouped.groups = 4, grouped.groups_kept = 2, grouped.group_score = RouterGroupScore::kMax;
  grouped.fills_with_zero = true, grouped.orders_by_logits = false, grouped.scale = 16.0F;
  Router deepseek = grouped;
  deepseek.score = RouterScore::kSigmoid;
  deepseek.group_score = RouterGroupScore::kTop2;
  deepseek.fills_with_zero = false, deepseek.scale = 2.5F;
  deepseek.normalize = RouterNormalize::kSum, deepseek.epsilon = 1e-20F;
  deepseek.has_aux = deepseek.counts_unbiased = true;
  deepseek.averages_softmax = false;
  Router root = deepseek;
  root.score = RouterScore::kSqrtSoftplus;
  root.groups = root.groups_kept = 1;
  Router capped = deepseek;
  capped.groups = capped.groups_kept = 1;
  capped.softcap = 3.0F, capped.logit_scale = 0.7F;
  capped.averages_softmax = capped.has_z = true;
  Router sigmoid_after = softmax;
  sigmoid_after.score = RouterScore::kSigmoid;
  sigmoid_after.is_after = true;
  Router floored = softmax;
  floored.normalize = RouterNormalize::kFloor, floored.epsilon = 0.8F;
  floored.orders_by_logits = false;
  Router zeros = softmax;
  zeros.zero_experts = 6, zeros.orders_by_logits = false, zeros.scale = 6.0F;
  Router function = softmax;
  function.score = RouterScore::kFunction;
  function.orders_by_logits = false;
  function.function = {.value = [](double z) { return std::log1p(z * z); },
                       .slope = [](double z) { return 2.0 * z / (1.0 + z * z); },
                       .value_error = [](double) { return 1e-7; },
                       .slope_error = [](double) { return 1e-7; }};
  return {{"softmax", softmax},
          {"normalized", normalized, false, true},
          {"after", after},
          {"grouped", grouped},
          {"deepseek", deepseek, true},
          {"root", root, true},
          {"capped", capped, true},
          {"sigmoid_after", sigmoid_after, true},
          {"floored", floored, true},
          {"zeros", zeros, true},
          {"function", function}};
}

// Random inputs of a router.
struct RouterCase {
  explicit RouterCase(const NamedRouter& of) : router(of.router) {
    const RandomStream stream(11, 3);
    const auto value = [&](std::uint64_t i, double scale) {
      return static_cast<float>(scale * stream.normal(i));
    };
    for (std::uint64_t i = 0; i < kRouterTokens * kRouterExperts; ++i)
      logits.push_back(value(i, 2.0));
    for (std::uint64_t i = 0; of.has_bias && i < kRouterExperts; ++i)
      bias.push_back(value(1000 + i, 0.05));
    for (std::uint64_t i = 0; of.has_expert_scale && i < kRouterExperts; ++i)
      expert_scale.push_back(1.0F + value(2000 + i, 0.1));
    for (std::uint64_t i = 0; i < kRouterTokens * kRouterTopK; ++i)
      dprobs.push_back(value(3000 + i, 1.0));
    for (std::uint64_t i = 0; i < kRouterTokens; ++i) dzero_probs.push_back(value(4000 + i, 1.0));
    for (std::uint64_t i = 0; i < kRouterExperts; ++i)
      counts.push_back(static_cast<std::int32_t>(stream.below(5000 + i, 9)));
  }
  RouterInputs inputs(std::span<const std::int64_t> ids = {}) const {
    return {.logits = logits, .bias = bias, .expert_scale = expert_scale, .ids = ids};
  }
  RouterGradientInputs gradient_inputs() const {
    return {.dprobs = dprobs,
            .dzero_probs = dzero_probs,
            .counts = counts,
            .aux_coefficient = router.has_aux ? 0.03F : 0.0F,
            .z_coefficient = router.has_z ? 0.02F : 0.0F};
  }

  Router router;
  std::vector<float> logits, bias, expert_scale, dprobs, dzero_probs;
  std::vector<std::int32_t> counts;
};

// A token's formulas in double, for given choices.
class RouterModel {
 public:
  RouterModel(const RouterCase& of, Numbers logits) : of_(of), z_(std::move(logits)) {
    for (double& z : z_) {
      z *= of.router.logit_scale;
      if (of.router.softcap != 0) z = of.router.softcap * std::tanh(z / of.router.softcap);
    }
    for (const double z : z_) sum_ += std::exp(z);
  }

  double score(std::int64_t i) const {
    const double z = z_[i];
    switch (of_.router.score) {
      case RouterScore::kSigmoid: return 1 / (1 + std::exp(-z));
      case RouterScore::kSqrtSoftplus: return std::sqrt(std::log(1 + std::exp(z)));
      case RouterScore::kFunction: return std::log(1 + z * z);
      default: return std::exp(z) / sum_;
    }
  }
  double order(std::int64_t i) const {
    const double bias = of_.bias.empty() ? 0.0 : of_.bias[i];
    return (of_.router.orders_by_logits ? z_[i] : score(i)) + bias;
  }

  std::vector<std::int64_t> choice() const {
    Numbers order_of;
    for (std::int64_t i = 0; i < kRouterExperts; ++i) order_of.push_back(order(i));
    const std::int64_t size = kRouterExperts / of_.router.groups;
    std::vector<std::pair<double, std::int64_t>> groups;
    for (std::int64_t g = 0; g < of_.router.groups; ++g) {
      Numbers members(order_of.begin() + g * size, order_of.begin() + (g + 1) * size);
      std::ranges::sort(members, std::greater<>());
      const bool is_pair = of_.router.group_score == RouterGroupScore::kTop2;
      groups.emplace_back(-members[0] - (is_pair ? members[1] : 0.0), g);
    }
    std::ranges::sort(groups);
    for (std::size_t g = of_.router.groups_kept; g < groups.size(); ++g)
      for (std::int64_t i = 0; i < size; ++i)
        order_of[groups[g].second * size + i] = of_.router.fills_with_zero ? 0.0 : -1e30;
    std::vector<std::int64_t> ids(kRouterExperts);
    std::iota(ids.begin(), ids.end(), 0);
    std::ranges::stable_sort(ids, std::greater<>(), [&](std::int64_t i) { return order_of[i]; });
    ids.resize(kRouterTopK);
    return ids;
  }

  Numbers probs(std::span<const std::int64_t> ids) const {
    Numbers weights;
    for (const std::int64_t id : ids)
      weights.push_back(of_.router.is_after && of_.router.score == RouterScore::kSoftmax
                            ? std::exp(z_[id])
                            : score(id));
    double divisor = 1.0;
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    if (of_.router.normalize == RouterNormalize::kSum) divisor = sum + of_.router.epsilon;
    if (of_.router.normalize == RouterNormalize::kFloor)
      divisor = std::fmax(sum, of_.router.epsilon);
    if (of_.router.is_after && of_.router.score == RouterScore::kSoftmax) divisor = sum;
    for (std::size_t k = 0; k < ids.size(); ++k)
      weights[k] *=
          of_.router.scale / divisor * (of_.expert_scale.empty() ? 1.0 : of_.expert_scale[ids[k]]);
    return weights;
  }

  double share(std::int64_t i) const {
    if (of_.router.averages_softmax) return std::exp(z_[i]) / sum_;
    double sum = 1e-20;
    for (std::int64_t j = 0; j < kRouterExperts; ++j) sum += score(j);
    return score(i) / sum;
  }
  double lse() const { return std::log(sum_); }

 private:
  const RouterCase& of_;
  Numbers z_;
  double sum_ = 0.0;
};

Numbers logits_of(const RouterCase& of, std::int64_t token) {
  return {of.logits.begin() + token * kRouterExperts,
          of.logits.begin() + (token + 1) * kRouterExperts};
}

// What backward differentiates, of a token with these choices.
double objective(const RouterCase& of, std::int64_t token, const Numbers& logits,
                 std::span<const std::int64_t> ids) {
  const RouterModel model(of, logits);
  const Numbers probs = model.probs(ids);
  const RouterGradientInputs with = of.gradient_inputs();
  double sum = with.z_coefficient * model.lse() * model.lse();
  for (std::int64_t i = 0; i < kRouterExperts; ++i)
    sum += with.aux_coefficient * with.counts[i] * model.share(i);
  for (std::int64_t k = 0; k < kRouterTopK; ++k)
    sum += probs[k] * (ids[k] >= kRouterExperts - of.router.zero_experts
                           ? of.dzero_probs[token]
                           : of.dprobs[token * kRouterTopK + k]);
  return sum;
}

class RouterKinds : public ::testing::TestWithParam<NamedRouter> {};

void PrintTo(const NamedRouter& router, std::ostream* out) { *out << router.name; }

TEST_P(RouterKinds, ChooseAndWeighAsTheFormulasSay) {
  const RouterCase of(GetParam());
  const RoutedLogits got = route_logits(of.router, of.inputs());
  Numbers shares(kRouterExperts, 0.0);
  double squares = 0.0;
  for (std::int64_t token = 0; token < kRouterTokens; ++token) {
    const RouterModel model(of, logits_of(of, token));
    const std::vector<std::int64_t> ids = model.choice();
    const Numbers probs = model.probs(ids);
    double zero = 0.0;
    for (std::int64_t k = 0; k < kRouterTopK; ++k) {
      const std::int64_t at = token * kRouterTopK + k;
      ASSERT_EQ(got.chosen_ids[at], ids[k]) << "token " << token << ", choice " << k;
      const bool is_zero = ids[k] >= kRouterExperts - of.router.zero_experts;
      EXPECT_EQ(got.topk_ids[at], is_zero ? -1 : ids[k]);
      EXPECT_NEAR(got.topk_probs[at], is_zero ? 0.0 : probs[k], 2e-6 * std::fabs(probs[k]));
      zero += is_zero ? probs[k] : 0.0;
    }
    EXPECT_NEAR(got.zero_probs[token], zero, 2e-6 * zero);
    for (std::int64_t i = 0; i < kRouterExperts; ++i) shares[i] += model.share(i);
    squares += model.lse() * model.lse();
  }
  EXPECT_EQ(got.status, 0U);
  for (std::size_t i = 0; i < got.score_sums.size(); ++i)
    EXPECT_NEAR(static_cast<double>(got.score_sums[i]) * 0x1p-32, shares[i], 2e-6);
  if (of.router.has_z) {
    EXPECT_NEAR(static_cast<double>(got.z_sum) * 0x1p-24, squares, 2e-6 * squares);
  }
}

TEST_P(RouterKinds, HaveTheGradientsOfTheirFormulas) {
  const RouterCase of(GetParam());
  const RoutedLogits routed = route_logits(of.router, of.inputs());
  const RouterGradients got =
      router_backward(of.router, of.inputs(routed.chosen_ids), of.gradient_inputs());
  constexpr double kStep = 1e-5;
  for (std::int64_t token = 0; token < kRouterTokens; ++token) {
    const auto ids = std::span(routed.chosen_ids).subspan(token * kRouterTopK, kRouterTopK);
    for (std::int64_t i = 0; i < kRouterExperts; ++i) {
      Numbers lower = logits_of(of, token), upper = lower;
      lower[i] -= kStep, upper[i] += kStep;
      const double slope =
          (objective(of, token, upper, ids) - objective(of, token, lower, ids)) / (2 * kStep);
      const std::int64_t at = token * kRouterExperts + i;
      // The third derivative times kStep^2 / 6, and the objective's roundings over kStep.
      EXPECT_NEAR(got.dlogits[at], slope, 2e-9) << "token " << token << ", expert " << i;
      EXPECT_LT(got.dlogits_bounds[at], 2e-4) << "a bound that lets errors pass";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RouterKinds, ::testing::ValuesIn(routers()),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST(RouterGradients, OfExpertScalesAreWeightsTimesGradients) {
  const NamedRouter named = routers()[1];
  RouterCase of(named);
  const RoutedLogits routed = route_logits(of.router, of.inputs());
  const RouterGradients got =
      router_backward(of.router, of.inputs(routed.chosen_ids), of.gradient_inputs());
  for (std::int64_t i = 0; i < kRouterTokens * kRouterTopK; ++i)
    EXPECT_NEAR(got.dexpert_scale[i],
                of.dprobs[i] * routed.topk_probs[i] / of.expert_scale[routed.chosen_ids[i]], 2e-6);
}

// A NaN, or weights that are all 0, concern the experts whose scores they are made of, and no
// others.
TEST(RouterGradients, OfOtherExpertsAreZeroBesideNan) {
  RouterCase of(routers()[6]);
  of.logits.resize(kRouterExperts), of.logits[7] = std::nanf("");
  of.router.has_aux = of.router.has_z = false;
  const std::vector<std::int64_t> ids = {3, 4, 5, 6};
  const RouterGradients got = router_backward(of.router, of.inputs(ids), of.gradient_inputs());
  EXPECT_EQ(got.dlogits[7], 0.0);
  EXPECT_NE(got.dlogits[3], 0.0);
  RouterCase normalized(routers()[1]);
  normalized.router.has_aux = normalized.router.has_z = false;
  normalized.logits.resize(kRouterExperts);
  for (const std::int64_t id : ids) normalized.logits[id] = -INFINITY;
  const RouterGradients none =
      router_backward(normalized.router, normalized.inputs(ids), normalized.gradient_inputs());
  EXPECT_EQ(none.dlogits[7], 0.0);
  EXPECT_TRUE(std::isnan(none.dlogits[3]));
}

TEST(RouterGradients, LeaveOutChoicesThatAreNone) {
  RouterCase of(routers()[4]);
  of.logits.resize(kRouterExperts), of.router.has_aux = false;
  const std::vector<std::int64_t> ids = {3, -1, 5, kRouterExperts};
  const RouterGradients got = router_backward(of.router, of.inputs(ids), of.gradient_inputs());
  for (std::int64_t i = 0; i < kRouterExperts; ++i)
    EXPECT_EQ(got.dlogits[i] != 0.0, i == 3 || i == 5) << i;
}

}  // namespace
}  // namespace moejit::reference
