// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/router.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/router_choice.h"
#include "runtime/reference/router_functions.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

namespace moejit::reference {
namespace {

using Choices = std::vector<std::int64_t>;
using Logits = std::vector<float>;

constexpr float kInfinite = std::numeric_limits<float>::infinity();
constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();

Router router_of(std::int64_t experts, std::int64_t top_k) {
  return {.experts = experts, .top_k = top_k};
}

RoutedLogits routed_by(const Router& router, const Logits& logits, const Logits& bias = {},
                       const Choices& ids = {}) {
  return route_logits(router, {.logits = logits, .bias = bias, .expert_scale = {}, .ids = ids});
}

Logits random_logits(std::int64_t count, std::uint64_t seed) {
  const RandomStream stream(seed, 1);
  Logits logits;
  for (std::int64_t i = 0; i < count; ++i)
    logits.push_back(static_cast<float>(2.0 * stream.normal(static_cast<std::uint64_t>(i))));
  return logits;
}

// Returns a number of the bits at 1/128, 2/128, ... 2.
template <typename Function>
std::uint32_t bits_digest(const Function& function) {
  std::uint32_t digest = 0;
  for (int i = 1; i <= 256; ++i)
    digest = 31 * digest + bits_of(function(static_cast<float>(i) / 128.0F));
  return digest;
}

// The results of docs/router.md's steps in exact rational arithmetic, rounded where it says so.
TEST(RouterFunctions, RoundAsThePageSays) {
  EXPECT_EQ(router_exp(-1.0F), 0x1.78b564p-2F);
  EXPECT_EQ(router_exp(-0.3F), 0x1.7b4c86p-1F);
  EXPECT_EQ(router_exp(-20.7F), 0x1.195912p-30F);
  EXPECT_EQ(router_exp(-86.9F), 0x1.8c1f12p-126F);
  EXPECT_EQ(ratio_log(0.3F), 0x1.3cf2b6p-1F);
  EXPECT_EQ(ratio_log(0.01F), 0x1.47b0e0p-6F);
  EXPECT_EQ(ratio_log(1.0F / 3.0F), 0x1.62e430p-1F);
  EXPECT_EQ(router_tanh(0.3F), 0x1.2a4ddcp-2F);
  EXPECT_EQ(router_tanh(-0.6F), -0x1.12f82ap-1F);
  EXPECT_EQ(router_tanh(1.7F), 0x1.deedf2p-1F);
  EXPECT_EQ(router_tanh(-5.0F), -0x1.fff418p-1F);
  EXPECT_EQ(router_sigmoid(0.7F), 0x1.561cb4p-1F);
  EXPECT_EQ(router_sigmoid(-3.3F), 0x1.236632p-5F);
  EXPECT_EQ(router_sqrt_softplus(0.5F), 0x1.f951f4p-1F);
  EXPECT_EQ(router_sqrt_softplus(-2.5F), 0x1.1f9d38p-2F);
  // 256 values each, so that every coefficient shows.
  EXPECT_EQ(bits_digest([](float x) { return router_exp(-5.0F * x); }), 0x2bbb0e76U);
  EXPECT_EQ(bits_digest([](float x) { return ratio_log(x / 8.0F); }), 0xe04811a2U);
  EXPECT_EQ(bits_digest(router_tanh), 0x2d1a96bfU);
  EXPECT_EQ(bits_digest([](float x) { return router_sigmoid(4.0F * x - 4.0F); }), 0x3d24b033U);
  EXPECT_EQ(bits_digest([](float x) { return router_sqrt_softplus(4.0F * x - 4.0F); }),
            0x7f11327cU);
}

TEST(RouterFunctions, AreNearTheExactOnes) {
  // In units in the last place: 0.87 of the exponential, 2.7 of the sigmoid, 2.1 of the root, 1.5
  // of the tangent were found among all floats in steps of 37.
  const auto near = [](float got, double wanted, double units) {
    EXPECT_NEAR(got, wanted, units * std::ldexp(1.0, std::ilogb(wanted) - 23)) << wanted;
  };
  for (float x = 0.0078125F; x < 80.0F; x *= 1.0137F) {
    near(router_exp(-x), std::exp(-static_cast<double>(x)), 0.9);
    for (const double z : {static_cast<double>(x), -static_cast<double>(x)}) {
      const auto narrow = static_cast<float>(z);
      near(router_sigmoid(narrow), 1.0 / (1.0 + std::exp(-z)), 2.7);
      near(router_tanh(narrow), std::tanh(z), 1.5);
      near(router_sqrt_softplus(narrow),
           std::sqrt(std::fmax(z, 0.0) + std::log1p(std::exp(-std::fabs(z)))), 2.1);
    }
    const float sum = 1.0F + x;
    near(log_sum_exp({.largest = 0.0F, .sum = sum}), std::log(static_cast<double>(sum)), 2.0);
  }
}

TEST(RouterFunctions, HaveTheirLimits) {
  EXPECT_EQ(router_exp(0.0F), 1.0F);
  EXPECT_EQ(router_exp(-87.5F), 0.0F);
  EXPECT_EQ(router_exp(-kInfinite), 0.0F);
  EXPECT_EQ(router_tanh(kInfinite), 1.0F);
  EXPECT_EQ(router_sigmoid(-kInfinite), 0.0F);
  EXPECT_EQ(router_sigmoid(kInfinite), 1.0F);
  for (float (*const function)(float) :
       {router_exp, router_tanh, router_sigmoid, router_sqrt_softplus})
    EXPECT_TRUE(std::isnan(function(kNoNumber)));
}

// 2^25 makes a 1 beside it vanish, so the order of additions shows.
TEST(RouterFunctions, AddNeighborsFirstAndThenHalves) {
  Logits values(64, 0.0F);
  values[0] = 0x1p25F, values[1] = -0x1p25F, values[2] = 1.0F;
  EXPECT_EQ(sum_experts(values, 2), 1.0F) << "0 and 1 are neighbors";
  const Logits choices = {1.0F, 0x1p25F, 1.0F, -0x1p25F};
  EXPECT_EQ(sum_choices(choices), 2.0F) << "0 and 2 are added first, then 1 and 3";
}

TEST(RouterFunctions, GiveLanesTheNeighborsOfAGroup) {
  EXPECT_EQ(neighbors_of({.experts = 32}), 1);
  EXPECT_EQ(neighbors_of({.experts = 60}), 2);
  EXPECT_EQ(neighbors_of({.experts = 60, .groups = 4}), 15);
  EXPECT_EQ(neighbors_of({.experts = 160, .groups = 8}), 5);
  EXPECT_EQ(neighbors_of({.experts = 256, .groups = 8}), 8);
  EXPECT_EQ(neighbors_of({.experts = 96, .groups = 3}), 4) << "32 lanes, 24 of them used";
}

// The page's exception: no sum over all experts rounds these weights.
TEST(Router, NormalizesASoftmaxOverTheChosen) {
  Router router = router_of(24, 4);
  router.is_after = true;
  const Logits logits = random_logits(std::int64_t{10} * 24, 5);
  const Logits after = routed_by(router, logits).topk_probs;
  router.is_after = false;
  router.normalize = RouterNormalize::kSum;
  EXPECT_EQ(routed_by(router, logits).topk_probs, after);
  router.epsilon = 1e-20F;
  EXPECT_NE(routed_by(router, logits).topk_probs, after);
}

TEST(Router, ChoosesTheLowerOfEqualExperts) {
  const Logits logits = {1, 2, 0, 2, 2, 1, 2, 1};
  EXPECT_EQ(routed_by(router_of(8, 5), logits).topk_ids, (Choices{1, 3, 4, 6, 0}));
  EXPECT_EQ(routed_by(router_of(4, 4), {-0.0F, 0.0F, -0.0F, 0.0F}).topk_ids, (Choices{0, 1, 2, 3}));
}

TEST(Router, AlwaysChoosesDifferentExperts) {
  const RoutedLogits all = routed_by(router_of(8, 3), Logits(8, kNoNumber));
  EXPECT_EQ(all.topk_ids, (Choices{0, 1, 2}));
  EXPECT_EQ(all.status, kRouterBadLogit);
  const RoutedLogits none = routed_by(router_of(8, 3), Logits(8, -kInfinite));
  EXPECT_EQ(none.topk_ids, (Choices{0, 1, 2}));
  EXPECT_EQ(none.status, kRouterBadLogit) << "a softmax of nothing is NaN";
  Router sigmoid = router_of(4, 3);
  sigmoid.score = RouterScore::kSigmoid;
  const RoutedLogits one = routed_by(sigmoid, {0.0F, 3.0F, kNoNumber, 4.0F});
  EXPECT_EQ(one.topk_ids, (Choices{2, 3, 1}));
  EXPECT_EQ(one.status, kRouterBadLogit);
  EXPECT_FALSE(std::isnan(one.topk_probs[1]));
  const RoutedLogits two = routed_by(sigmoid, {kInfinite, -kNoNumber, 0.0F, kNoNumber});
  EXPECT_EQ(two.topk_ids, (Choices{1, 3, 0})) << "all NaN are equal, and above infinity";
  EXPECT_EQ(routed_by(sigmoid, {-kInfinite, 3.0F, 2.0F, 4.0F}).status, 0U);
}

TEST(Router, AddsTheBiasToTheOrderAlone) {
  Router router = router_of(4, 2);
  router.score = RouterScore::kSigmoid;
  router.orders_by_logits = false;
  const Logits logits = {0.0F, 1.0F, 2.0F, 3.0F};
  const RoutedLogits routed = routed_by(router, logits, {1.0F, 0.0F, 0.0F, 0.0F});
  EXPECT_EQ(routed.topk_ids, (Choices{0, 3}));
  EXPECT_EQ(routed.topk_probs, (Logits{0.5F, router_sigmoid(3.0F)}));
  router.orders_by_logits = true;
  EXPECT_EQ(routed_by(router, logits, {2.0F, 1.5F, 0.0F, -1.0F}).topk_ids, (Choices{1, 0}));
}

// Groups of 2: scores 0.9 + 0.1, 0.6 + 0.6, 0.8 + 0.3.
TEST(Router, KeepsGroupsByTheirScores) {
  Router router = router_of(6, 2);
  router.score = RouterScore::kFunction;
  router.function.value = [](double z) { return z; };
  router.orders_by_logits = false;
  router.groups = 3;
  const Logits logits = {0.9F, 0.1F, 0.6F, 0.6F, 0.8F, 0.3F};
  EXPECT_EQ(routed_by(router, logits).topk_ids, (Choices{2, 3})) << "two largest";
  router.group_score = RouterGroupScore::kMax;
  EXPECT_EQ(routed_by(router, logits).topk_ids, (Choices{0, 1})) << "largest";
  router.group_score = RouterGroupScore::kSum;
  router.groups_kept = 2;
  EXPECT_EQ(routed_by(router, logits).topk_ids, (Choices{0, 4})) << "one of each";
  router.group_score = RouterGroupScore::kTop2;
  EXPECT_EQ(routed_by(router, {0.5F, 0.5F, 0.5F, 0.5F, 0.5F, 0.5F}).topk_ids, (Choices{0, 1}));
}

TEST(Router, FillsOtherGroupsWithZeroIfItIsSaid) {
  Router router = router_of(4, 2);
  router.score = RouterScore::kFunction;
  router.function.value = [](double z) { return z; };
  router.orders_by_logits = false;
  router.groups = 2;
  const Logits logits = {-1.0F, -2.0F, 1.0F, -3.0F};
  router.group_score = RouterGroupScore::kMax;
  EXPECT_EQ(routed_by(router, logits).topk_ids, (Choices{2, 3}));
  EXPECT_EQ(routed_by(router, {-1.0F, -2.0F, 1.0F, -kInfinite}).topk_ids, (Choices{2, 0}))
      << "both are -inf, and 0 is lower";
  router.fills_with_zero = true;
  EXPECT_EQ(routed_by(router, logits).topk_ids, (Choices{2, 0}));
}

TEST(Router, GivesZeroExpertsNoRows) {
  Router router = router_of(4, 2);
  router.zero_experts = 2;
  router.scale = 2.0F;
  const RoutedLogits routed = routed_by(router, {0.0F, 0.0F, 1.0F, 0.0F});
  EXPECT_EQ(routed.chosen_ids, (Choices{2, 0}));
  EXPECT_EQ(routed.topk_ids, (Choices{-1, 0}));
  EXPECT_EQ(routed.topk_probs[0], 0.0F);
  EXPECT_NEAR(routed.zero_probs[0], 2.0 * std::exp(1.0) / (std::exp(1.0) + 3.0), 1e-6);
  EXPECT_EQ(routed.counts, (std::vector<std::int32_t>{1, 0, 1, 0}));
}

TEST(Router, TakesGivenIdsAndReportsWrongOnes) {
  Router router = router_of(4, 3);
  router.score = RouterScore::kSigmoid;
  router.normalize = RouterNormalize::kSum;
  const RoutedLogits routed = routed_by(router, {0.0F, 1.0F, 2.0F, 3.0F}, {}, {-1, 3, 3});
  EXPECT_EQ(routed.topk_probs, (Logits{0.0F, 0.5F, 0.5F}));
  EXPECT_EQ(routed.status, 0U);
  EXPECT_EQ(routed.counts, (std::vector<std::int32_t>{0, 0, 0, 2}));
  const RoutedLogits wrong = routed_by(router, {0.0F, 1.0F, 2.0F, 3.0F}, {}, {4, -2, 0});
  EXPECT_EQ(wrong.chosen_ids, (Choices{-1, -1, 0}));
  EXPECT_EQ(wrong.status, kRouterBadExpertId);
}

TEST(Router, AddsUpTheSameSumsInAnyOrderOfTokens) {
  Router router = router_of(24, 4);
  router.score = RouterScore::kSigmoid;
  router.has_aux = router.has_z = router.counts_unbiased = true;
  router.averages_softmax = false;
  const Logits logits = random_logits(std::int64_t{40} * 24, 7);
  Logits turned(logits.begin() + 24 * 13, logits.end());
  turned.insert(turned.end(), logits.begin(), logits.begin() + 24 * 13);
  const RoutedLogits a = routed_by(router, logits), b = routed_by(router, turned);
  EXPECT_EQ(a.score_sums, b.score_sums);
  EXPECT_EQ(a.z_sum, b.z_sum);
  EXPECT_EQ(a.counts, b.counts);
  EXPECT_EQ(a.unbiased_counts, b.unbiased_counts);
  std::int64_t sum = 0;
  for (const std::int64_t one : a.score_sums) sum += one;
  EXPECT_NEAR(static_cast<double>(sum), 40 * 0x1p32, 40 * 0x1p12) << "a token's shares add to 1";
}

TEST(Router, LeavesBadTokensOutOfSums) {
  Router router = router_of(4, 2);
  router.has_aux = router.has_z = true;
  const RoutedLogits one = routed_by(router, {1.0F, 2.0F, 3.0F, 4.0F});
  const RoutedLogits two =
      routed_by(router, {1.0F, 2.0F, 3.0F, 4.0F, kNoNumber, 0.0F, 0.0F, kInfinite});
  EXPECT_EQ(one.score_sums, two.score_sums);
  EXPECT_EQ(one.z_sum, two.z_sum);
  const double lse = 4.0 + std::log(1.0 + std::exp(-1.0) + std::exp(-2.0) + std::exp(-3.0));
  EXPECT_NEAR(static_cast<double>(one.z_sum) * 0x1p-24, lse * lse, 4e-6);
}

TEST(Router, AcceptsAnotherChoiceWithinErrorsOnly) {
  Router router = router_of(4, 2);
  router.score = RouterScore::kFunction;
  router.function.value = [](double z) { return z; };
  router.function.value_error = [](double) { return 0.01; };
  router.orders_by_logits = false;
  const Logits logits = {1.0F, 1.01F, 2.0F, 0.0F};
  EXPECT_TRUE(may_choose(router, logits, {}, Choices{2, 1}));
  EXPECT_TRUE(may_choose(router, logits, {}, Choices{2, 0}));
  EXPECT_FALSE(may_choose(router, logits, {}, Choices{1, 2})) << "not in descending order";
  EXPECT_FALSE(may_choose(router, logits, {}, Choices{2, 3})) << "leaves out a better one";
  EXPECT_FALSE(may_choose(router, logits, {}, Choices{2, 2}));
  EXPECT_FALSE(may_choose(router, logits, {}, Choices{2, 4}));
}

}  // namespace
}  // namespace moejit::reference
