// SPDX-License-Identifier: Apache-2.0
// Layers with a router, beside the operations router and router_backward around the same layer
// without it: the same bits of every result, and every tensor against the CPU reference. Groups of
// two and of four ranks have the bits of one rank with all tokens.
#include "compiler/operation.h"
#include "runtime/check/check_plan.h"
#include "runtime/trial/layer_inputs.h"
#include "runtime/trial/trial.h"
#include "tests/gpu/group_case.h"
#include "tests/gpu/test_layer.h"
#include "tests/support/matchers.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

namespace moejit::testing {
namespace {

using compiler::Layer;
using compiler::Plan;
using compiler::Recipe;
using runtime::TensorMap;

struct RouterCase {
  std::string name;
  std::string router;
  Recipe recipe = Recipe::kBf16;
  int32_t max_tokens = 40;
  bool has_backward = true;
  int64_t tokens = 37;
  std::string shared = {};
};

void PrintTo(const RouterCase& one, std::ostream* out) { *out << one.name; }

Layer layer_of(const RouterCase& of) {
  const auto layer = compiler::parse_layer(
      fmt::format(R"({{"experts": 8, "top_k": 3, "hidden": 160, "intermediate": 96,
                       "max_tokens": {}, "recipe": "{}", "passes": ["forward"{}], "router": {}{}}})",
                  of.max_tokens, of.recipe.name, of.has_backward ? R"(, "backward")" : "",
                  of.router, of.shared.empty() ? "" : R"(, "shared": )" + of.shared),
      "layer");
  EXPECT_TRUE(succeeded(layer));
  return layer.value_or(Layer{});
}

// What plans of these tests are run with.
trial::CallInputs call_with(const Plan& plan, const TensorMap& tensors, int64_t tokens) {
  trial::CallInputs call{
      .dims = compiler::call_dims(plan.bounds, tokens), .rows = {}, .tensors = {}};
  for (const compiler::TensorPlan& tensor : plan.tensors)
    if (const auto found = tensors.find(tensor.name); found != tensors.end())
      call.tensors.insert(*found);
  return call;
}

// Returns the results of calls, and intermediates of a plan that keeps them. None after a failure.
TensorMap results_of(const Plan& plan, const trial::CallInputs& inputs,
                     const std::vector<std::string>& calls) {
  auto session = trial::Trial::create(plan, *test_device().engine, *test_device().device, inputs);
  EXPECT_TRUE(succeeded(session));
  if (!session) return {};
  for (const std::string& call : calls) EXPECT_TRUE(succeeded((*session)->call(call)));
  EXPECT_TRUE(succeeded((*session)->status()));
  const auto results = (*session)->results(0, true);
  EXPECT_TRUE(succeeded(results));
  return results.value_or(TensorMap{});
}

TensorMap results_of_operation(const std::string& name, const RouterCase& of,
                               const TensorMap& tensors) {
  const std::string json = fmt::format(
      R"({{"operation": "{}", "max_tokens": {}, "experts": 8, "top_k": 3, "router": {}}})", name,
      of.max_tokens, of.router);
  const auto plan = compiler::parse_operation(json, name).and_then([](const auto& operation) {
    return compiler::plan_operation(operation, test_device().device->target());
  });
  EXPECT_TRUE(succeeded(plan));
  return plan ? results_of(*plan, call_with(*plan, tensors, of.tokens), {"run"}) : TensorMap{};
}

Plan plan_of(const Layer& layer) {
  const auto plan =
      compiler::plan_layer(layer, test_device().device->target(), {.keep_intermediates = true});
  EXPECT_TRUE(succeeded(plan));
  return plan.value_or(Plan{});
}

void expect_same_bits(const TensorMap& got, const TensorMap& wanted,
                      std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    const auto found = wanted.find(name);
    if (found == wanted.end()) continue;
    ASSERT_TRUE(got.contains(name)) << name;
    EXPECT_TRUE(got.find(name)->second.bytes == found->second.bytes) << name;
  }
}

class RouterLayer : public ::testing::TestWithParam<RouterCase> {
 protected:
  void SetUp() override {
    if (test_device().device == nullptr) GTEST_SKIP() << test_device().reason;
  }
};

TEST_P(RouterLayer, HasTheBitsOfTheOperationsAroundTheLayer) {
  const RouterCase& of = GetParam();
  const Layer layer = layer_of(of);
  const Plan plan = plan_of(layer);
  const auto loaded = trial::load_layer_inputs(plan, {.tokens = of.tokens, .random = {.seed = 3}});
  ASSERT_TRUE(succeeded(loaded));
  const std::vector<std::string> calls =
      of.has_backward ? std::vector<std::string>{"update_weights", "forward", "backward"}
                      : std::vector<std::string>{"update_weights", "forward"};
  const TensorMap got = results_of(plan, trial::call_of(*loaded), calls);
  const std::vector<std::string_view> names(calls.begin(), calls.end());
  for (const check::TensorCheck& check : check::check_plan(plan, names, *loaded, got))
    EXPECT_TRUE(check.has_passed) << check.tensor << ": " << check.verdict << ", " << check.message;

  TensorMap tensors = *loaded;
  const TensorMap routed = results_of_operation("router", of, tensors);
  expect_same_bits(got, routed,
                   {"topk_ids", "topk_probs", "counts", "unbiased_counts", "score_sums", "z_sum"});
  for (const auto& [name, tensor] : routed) tensors[name] = tensor;
  tensors.erase("status");
  const Plan chosen = plan_of(without_router(layer));
  const TensorMap wanted = results_of(chosen, call_with(chosen, tensors, of.tokens), calls);
  expect_same_bits(got, wanted, {"y", "dx", "dshared_probs", "dw1", "dw2"});
  if (!of.has_backward) return;
  tensors["dprobs"] = wanted.at("dprobs");
  // The operation takes what the loss counts as `counts`.
  if (tensors.contains("unbiased_counts")) tensors["counts"] = tensors.at("unbiased_counts");
  const TensorMap gradients = results_of_operation("router_backward", of, tensors);
  ASSERT_TRUE(gradients.contains("dlogits"));
  expect_same_bits(got, gradients, {"dlogits", "dexpert_scale"});
}

INSTANTIATE_TEST_SUITE_P(
    Formulas, RouterLayer,
    ::testing::Values(
        RouterCase{"Softmax", R"({"normalize": "sum", "logits_dtype": "bf16"})"},
        RouterCase{"Groups", R"({"score": "sigmoid", "bias": true, "groups": 4, "groups_kept": 2,
                                 "normalize": "sum", "epsilon": 1e-20, "scale": 2.5,
                                 "aux": "unbiased", "z": true})",
                   Recipe::kFp8Flow},
        RouterCase{"Given", R"({"score": "sqrtsoftplus", "ids": "given", "expert_scale": true,
                                "aux": "chosen"})",
                   Recipe::kBf16},
        RouterCase{"FewTokens", R"({"score": "sigmoid", "bias": true, "normalize": "sum"})",
                   Recipe::kFp8Flow, 8, false, 5},
        RouterCase{"NoTokens", R"({"aux": "chosen"})", Recipe::kFp8Flow, 8, false, 0},
        RouterCase{"Shared", R"({"score": "sigmoid", "bias": true, "normalize": "sum",
                                 "expert_scale": true, "aux": "unbiased", "z": true})",
                   Recipe::kFp8Flow, 40, true, 37, R"({"experts": 1, "gate": true})"},
        RouterCase{"FewTokensShared", R"({"normalize": "sum"})", Recipe::kBf16, 8, false, 5,
                   R"({"experts": 2})"}),
    [](const auto& one) { return one.param.name; });

struct RankCase {
  std::string name;
  std::vector<int64_t> tokens;  // of each rank
  compiler::SharedExperts shared;
};

class RouterGroup : public ::testing::TestWithParam<RankCase> {};

TEST_P(RouterGroup, HasTheBitsOfOneRankWithAllTokens) {
  Layer layer = group_layer(static_cast<int32_t>(GetParam().tokens.size()));
  layer.shared = GetParam().shared;
  layer.recipe = Recipe::kBf16;
  layer.dispatch = compiler::Dispatch::kNone;
  layer.router = compiler::RouterFormula{.score = compiler::RouterScore::kSigmoid,
                                         .has_bias = true,
                                         .normalize = compiler::RouterNormalize::kSum,
                                         .z = true};
  layer.expert_parallel.combine = compiler::Combine::kRows;
  std::string why_not;
  const auto group = GroupCase::open(completed(layer), GetParam().tokens, why_not);
  if (group == nullptr) GTEST_SKIP() << why_not;
  for (const uint32_t status : group->run()) EXPECT_EQ(status, 0U);
  group->expect_bits_of_one_rank();
}

INSTANTIATE_TEST_SUITE_P(Ranks, RouterGroup,
                         ::testing::Values(RankCase{"Two", {5, 8}, {}},
                                           RankCase{"FourWithASharedExpert",
                                                    {5, 8, 0, 12},
                                                    {.experts = 1, .gate = true}}),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace moejit::testing
