// SPDX-License-Identifier: Apache-2.0
// Routers of every kind give the bits of the CPU reference, whatever their logits are: equal ones,
// NaN, infinite ones.

#include "runtime/check/check_plan.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/trial/devices.h"
#include "runtime/trial/operation_inputs.h"
#include "runtime/trial/routing_tensors.h"
#include "runtime/trial/trial.h"
#include "tests/support/matchers.h"
#include "tests/support/test_engine.h"
#include "tests/tested_target.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <set>

namespace moejit::testing {
namespace {

using compiler::Plan;
using runtime::HostTensor;
using runtime::TensorMap;
using trial::CallInputs;

constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinite = std::numeric_limits<float>::infinity();

// Logits of which every eighth token is of another kind.
float logit_of(int64_t token, int64_t expert, double normal) {
  const auto value = static_cast<float>(2.0 * normal);
  switch (token % 8) {
    case 1: return std::round(value);                      // many are equal
    case 2: return 0.0F;                                   // all are equal
    case 3: return expert % 2 == 0 ? 0.0F : -0.0F;         // so are these
    case 4: return expert % 3 == 1 ? kNoNumber : value;    // NaN is the highest
    case 5: return expert % 20 == 3 ? value : -kInfinite;  // few can be chosen
    case 6: return -kInfinite;
    case 7: return expert == 2 ? kInfinite : 40.0F * value;  // scores are 0 or 1
    default: return value;
  }
}

std::vector<float> kinds_of_logits(int64_t tokens, int64_t experts, uint64_t seed) {
  const reference::RandomStream random(seed, 5);
  std::vector<float> logits;
  for (int64_t i = 0; i < tokens * experts; ++i)
    logits.push_back(logit_of(i / experts, i % experts, random.normal(static_cast<uint64_t>(i))));
  return logits;
}

class RouterRuns : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = trial::Devices::open_one(std::string(tested_target()), 1, "");
    if (!opened) GTEST_SKIP() << to_string(opened.error());
    devices_ = *std::move(opened);
  }

  Plan plan(std::string_view operation, int64_t experts, int64_t top_k, std::string_view formula,
            std::string_view more = "") {
    const std::string json = fmt::format(
        R"({{"operation": "{}", "max_tokens": 512, "experts": {}, "top_k": {}, "router": {}{}}})",
        operation, experts, top_k, formula, more);
    const auto plan = compiler::parse_operation(json, "test").and_then([&](const auto& one) {
      return compiler::plan_operation(one, devices_->device(0).target());
    });
    EXPECT_TRUE(succeeded(plan)) << json;
    return plan.value_or(Plan{});
  }

  // Returns what a call writes, which is what the reference makes of its inputs.
  TensorMap run(const Plan& plan, const CallInputs& call) {
    const auto session = trial::Trial::create(plan, test_engine(), devices_->device(0), call);
    EXPECT_TRUE(succeeded(session));
    if (!session) return {};
    EXPECT_TRUE(succeeded((*session)->call("run")));
    const auto results = (*session)->results();
    EXPECT_TRUE(succeeded(results));
    if (!results) return {};
    constexpr std::string_view kCalls[] = {"run"};
    const auto checks = check::check_plan(plan, kCalls, call.tensors, *results);
    EXPECT_EQ(checks.size(), results->size());
    for (const check::TensorCheck& one : checks)
      EXPECT_TRUE(one.has_passed) << one.tensor << ": " << one.verdict << ", " << one.message;
    return *results;
  }

  static CallInputs call_of(const Plan& plan, int64_t tokens, uint64_t seed) {
    CallInputs call = trial::random_operation_call(plan, tokens, {seed});
    HostTensor& logits = call.tensors.at("logits");
    logits = trial::make_topk_probs(logits.dtype, logits.shape,
                                    kinds_of_logits(tokens, logits.shape[1], seed));
    return call;
  }

  void expect_right(int64_t experts, int64_t top_k, std::string_view formula,
                    std::string_view more = "", int64_t tokens = 24) {
    SCOPED_TRACE(fmt::format("{} experts, K {}, {}", experts, top_k, formula));
    const Plan forward = plan("router", experts, top_k, formula, more);
    const TensorMap made = run(forward, call_of(forward, tokens, 1));
    if (!made.contains("topk_ids")) return;
    const bool has_zero = made.contains("chosen_ids");
    expect_distinct(trial::expert_ids(made.at(has_zero ? "chosen_ids" : "topk_ids")), top_k);
  }

  // No token has an expert twice, or none.
  static void expect_distinct(const std::vector<int64_t>& ids, int64_t top_k) {
    for (auto first = ids.begin(); first < ids.end(); first += top_k) {
      const std::set<int64_t> of_token(first, first + top_k);
      EXPECT_EQ(std::ssize(of_token), top_k);
      EXPECT_GE(*of_token.begin(), 0);
    }
  }

  std::unique_ptr<trial::Devices> devices_;
};

constexpr const char* kGrouped =
    R"({"score": "sigmoid", "bias": true, "groups": 8, "groups_kept": 4, "normalize": "sum",
        "epsilon": 1e-20, "scale": 2.5, "aux": "unbiased", "z": true})";

TEST_F(RouterRuns, HaveTheBitsOfTheReferenceForAnyNumberOfExperts) {
  constexpr const char* kUsual = R"({"normalize": "sum"})";
  for (const auto& [experts, top_k] :
       {std::pair{8, 2}, {8, 8}, {1, 1}, {33, 5}, {60, 4}, {128, 8}, {160, 6}, {1024, 32}})
    expect_right(experts, top_k, kUsual);
}

TEST_F(RouterRuns, HaveTheBitsOfTheReferenceForAnyFormula) {
  expect_right(64, 6, R"({})");
  expect_right(64, 6, R"({"when": "after", "logits_dtype": "bf16"})",
               R"(, "topk_ids_dtype": "i64")");
  expect_right(64, 6, R"({"score": "sigmoid", "bias": true, "normalize": "sum", "aux": "chosen"})");
  expect_right(64, 6,
               R"({"score": "sqrtsoftplus", "bias": true, "softcap": 30, "aux": "unbiased"})");
  expect_right(64, 6, R"({"bias": true, "normalize": "floor", "epsilon": 1e-12, "z": true})");
  expect_right(64, 6, R"({"bias": true, "zero_experts": 32, "scale": 6, "aux": "chosen"})");
  expect_right(64, 6, R"({"score": "sigmoid", "logit_scale": 0.5, "expert_scale": true,
                          "aux": "chosen", "aux_score": "softmax"})");
  expect_right(64, 6, R"({"ids": "given", "normalize": "sum", "z": true})");
}

TEST_F(RouterRuns, HaveTheBitsOfTheReferenceForGroups) {
  expect_right(256, 8, kGrouped);
  expect_right(160, 6,
               R"({"groups": 8, "groups_kept": 3, "group_score": "max", "group_fill": "zero"})");
  expect_right(60, 9, R"({"groups": 6, "groups_kept": 3, "group_score": "sum", "bias": true,
                          "normalize": "sum", "logits_dtype": "bf16"})");
  expect_right(64, 6, R"({"order": "logits", "groups": 4, "groups_kept": 2})");
  expect_right(32, 4,
               R"({"score": "sigmoid", "groups": 32, "groups_kept": 7, "group_score": "max"})");
}

TEST_F(RouterRuns, TakeAnyNumberOfTokens) {
  // The last number is more than the simulator's SMs have warps.
  for (const int64_t tokens : {0, 1, 300}) expect_right(256, 8, kGrouped, "", tokens);
  const Plan backward = plan("router_backward", 256, 8, kGrouped);
  run(backward, trial::random_operation_call(backward, 300, {7}));
}

HostTensor with_rows(const HostTensor& tensor, const std::vector<int64_t>& order) {
  HostTensor moved = tensor;
  const auto bytes = tensor.bytes.size() / order.size();
  for (size_t i = 0; i < order.size(); ++i)
    std::copy_n(tensor.bytes.begin() + static_cast<int64_t>(static_cast<size_t>(order[i]) * bytes),
                bytes, moved.bytes.begin() + static_cast<int64_t>(i * bytes));
  return moved;
}

TEST_F(RouterRuns, GiveTokensInAnyOrderTheSameBits) {
  const Plan forward = plan("router", 256, 8, kGrouped);
  CallInputs call = call_of(forward, 24, 3);
  const TensorMap first = run(forward, call);
  std::vector<int64_t> order;
  for (int64_t i = 0; i < 24; ++i) order.push_back((7 * i + 5) % 24);
  call.tensors.at("logits") = with_rows(call.tensors.at("logits"), order);
  const TensorMap second = run(forward, call);
  for (const auto& [name, tensor] : first) {
    const bool is_of_tokens = name == "topk_ids" || name == "topk_probs";
    EXPECT_EQ(second.at(name).bytes, is_of_tokens ? with_rows(tensor, order).bytes : tensor.bytes)
        << name;
  }
}

TEST_F(RouterRuns, TellOfLogitsThatAreNoNumbers) {
  const Plan forward = plan("router", 64, 6, R"({"normalize": "sum"})");
  const auto status_of = [&](float logit) {
    CallInputs call = trial::random_operation_call(forward, 9, {4});
    runtime::elements<float>(call.tensors.at("logits"));
    std::vector<float> logits = runtime::copy_elements<float>(call.tensors.at("logits"));
    logits[64 * 8 + 17] = logit;
    call.tensors.at("logits") = runtime::make_tensor(compiler::DType::kF32, {9, 64}, logits);
    const TensorMap made = run(forward, call);
    return runtime::elements<uint32_t>(made.at("status")).front();
  };
  EXPECT_EQ(status_of(1.0F), 0U);
  EXPECT_EQ(status_of(-kInfinite), 0U);
  EXPECT_EQ(status_of(kNoNumber), 32U);
  EXPECT_EQ(status_of(kInfinite), 32U);
}

// Gradients are within their bounds, of all kinds of weights and losses.
TEST_F(RouterRuns, HaveTheGradientsOfTheReference) {
  const auto expect_gradients = [&](int64_t experts, int64_t top_k, std::string_view formula) {
    SCOPED_TRACE(formula);
    const Plan backward = plan("router_backward", experts, top_k, formula);
    for (const int64_t tokens : {0, 1, 24})
      run(backward, trial::random_operation_call(backward, tokens, {6}));
  };
  expect_gradients(128, 8, R"({"normalize": "sum", "logits_dtype": "bf16"})");
  expect_gradients(64, 6, R"({})");
  expect_gradients(64, 6, R"({"when": "after", "normalize": "sum", "epsilon": 0.5, "z": true})");
  expect_gradients(60, 4,
                   R"({"normalize": "floor", "epsilon": 0.5, "softcap": 3, "aux": "chosen"})");
  expect_gradients(256, 8, kGrouped);
  expect_gradients(33, 6, R"({"score": "sqrtsoftplus", "normalize": "sum", "logit_scale": 0.5,
                              "expert_scale": true, "aux": "chosen"})");
  expect_gradients(64, 6, R"({"bias": true, "zero_experts": 32, "scale": 6})");
  expect_gradients(64, 6, R"({"score": {"expression": "tanh(logit) + 2"}, "ids": "given",
                              "normalize": "sum", "aux": "chosen", "aux_score": "softmax"})");
}

}  // namespace
}  // namespace moejit::testing
