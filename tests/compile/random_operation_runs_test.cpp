// SPDX-License-Identifier: Apache-2.0
// Random operations give what the CPU reference gives, in the simulator and, where there is one, on
// a GPU; each tensor that they write is compared, and damage in it is seen.
//
// RANDOM_OPERATIONS=200 runs those of seeds 1 to 200, RANDOM_OPERATIONS_FROM=201 later ones.
// Routers have a case of their own, RANDOM_ROUTERS and RANDOM_ROUTERS_FROM, with logits that are
// equal, NaN, infinite or far from 0 in seven of eight tokens.

#include "runtime/check/check_plan.h"
#include "runtime/trial/devices.h"
#include "runtime/trial/operation_inputs.h"
#include "runtime/trial/routing_tensors.h"
#include "runtime/trial/trial.h"
#include "tests/support/matchers.h"
#include "tests/support/random_operation.h"
#include "tests/support/seeded_random.h"
#include "tests/support/test_engine.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <limits>

namespace moejit::testing {
namespace {

using check::TensorCheck;
using compiler::Plan;
using runtime::TensorMap;

int64_t number_of(const char* variable, int64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoll(text);
}

// Returns T, P or C of a call: mostly the bound, sometimes few or none.
int64_t size_of_call(const Plan& plan, uint64_t seed) {
  const auto bound = trial::call_size(plan);
  if (!bound) return 0;
  SeededRandom random(~seed);
  return random.in_percent(60) ? bound->value : random.between(0, bound->value);
}

std::vector<TensorCheck> check(const Plan& plan, const TensorMap& inputs,
                               const TensorMap& results) {
  constexpr std::string_view kCalls[] = {"run"};
  return check::check_plan(plan, kCalls, inputs, results);
}

bool has_failed(const std::vector<TensorCheck>& checks, const std::string& tensor) {
  return std::ranges::any_of(
      checks, [&](const TensorCheck& one) { return one.tensor == tensor && !one.has_passed; });
}

// Flips a bit of the exponent of the first element, which belongs to a group where there is one.
void expect_damage_is_seen(const Plan& plan, const trial::CallInputs& call, TensorMap results) {
  for (auto& [name, tensor] : results) {
    if (tensor.bytes.empty()) continue;
    const auto highest = static_cast<std::size_t>(compiler::size_bytes(tensor.dtype)) - 1;
    std::byte& byte = name == "status" ? tensor.bytes.front() : tensor.bytes[highest];
    const std::byte kept = byte;
    byte ^= name == "status" ? std::byte{0x04} | std::byte{0x02} : std::byte{0x41};
    EXPECT_TRUE(has_failed(check(plan, call.tensors, results), name)) << name;
    byte = kept;
  }
}

// Returns the logit of a token of one of eight kinds, from a normal number.
float special_logit(int64_t token, int64_t chance, float normal) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  switch (token % 8) {
    case 1: return std::round(normal);
    case 2: return 0.0F;
    case 3: return chance == 0 ? std::numeric_limits<float>::quiet_NaN() : normal;
    case 4: return chance < 17 ? -kInfinite : normal;
    case 5: return 40.0F * normal;
    case 6: return chance == 0 ? kInfinite : normal;
    case 7: return -90.0F + normal;
    default: return normal;
  }
}

// Replaces the logits of an operation that has some.
void make_special(trial::CallInputs& call, uint64_t seed) {
  const auto found = call.tensors.find("logits");
  if (found == call.tensors.end()) return;
  runtime::HostTensor& tensor = found->second;
  std::vector<float> logits = trial::probabilities(tensor);
  SeededRandom random(seed);
  for (size_t i = 0; i < logits.size(); ++i)
    logits[i] =
        special_logit(static_cast<int64_t>(i) / tensor.shape[1], random.between(0, 19), logits[i]);
  tensor = trial::make_topk_probs(tensor.dtype, tensor.shape, logits);
}

void expect_right(uint64_t seed, const std::string& json, const Plan& plan,
                  runtime::Device& device) {
  SCOPED_TRACE(fmt::format("{}\nseed {}", json, seed));
  trial::CallInputs call = trial::random_operation_call(plan, size_of_call(plan, seed), {seed});
  if (seed % 2 == 1) make_special(call, seed);
  const auto session = trial::Trial::create(plan, test_engine(), device, call);
  ASSERT_TRUE(succeeded(session));
  ASSERT_TRUE(succeeded((*session)->call("run")));
  auto results = (*session)->results();
  ASSERT_TRUE(succeeded(results));
  trial::cut_rows(plan, call, call.tensors);
  trial::cut_rows(plan, call, *results);
  const std::vector<TensorCheck> checks = check(plan, call.tensors, *results);
  for (const TensorCheck& one : checks)
    EXPECT_TRUE(one.has_passed) << one.tensor << ": " << one.verdict << ", " << one.message;
  const bool has_rows = call.rows.routed > 0 || !call.tensors.contains("offs");
  if (has_rows && call.dims.tokens + call.rows.padded > 0)
    expect_damage_is_seen(plan, call, *results);
}

// What draws descriptions, and the variables that say how many of them and from which seed.
struct RandomKind {
  std::string (*draw)(uint64_t seed);
  const char* count;
  const char* first;
};
constexpr RandomKind kOperations = {random_operation, "RANDOM_OPERATIONS",
                                    "RANDOM_OPERATIONS_FROM"};
constexpr RandomKind kRouters = {random_router_operation, "RANDOM_ROUTERS", "RANDOM_ROUTERS_FROM"};

void run_random_operations(const std::string& target, int64_t count,
                           const RandomKind& kind = kOperations) {
  const auto opened = trial::Devices::open_one(target, 1, "");
  if (!opened) GTEST_SKIP() << to_string(opened.error());
  const auto first = static_cast<uint64_t>(number_of(kind.first, 1));
  const auto end = first + static_cast<uint64_t>(number_of(kind.count, count));
  int64_t taken = 0;
  for (uint64_t seed = first; seed < end; ++seed) {
    const std::string json = kind.draw(seed);
    const auto plan = compiler::parse_operation(json, "operation").and_then([&](const auto& one) {
      return compiler::plan_operation(one, (*opened)->device(0).target());
    });
    if (plan) {
      ++taken;
      expect_right(seed, json, *plan, (*opened)->device(0));
    } else {
      fmt::print("refused: seed {}: {}\n", seed, to_string(plan.error()));
    }
  }
  fmt::print("random operations on {}: {} of {} taken and run\n", target, taken, end - first);
  EXPECT_GT(taken, 0);
}

TEST(RandomOperationRuns, AgreeWithTheReferenceInTheSimulator) { run_random_operations("sim", 24); }
TEST(RandomOperationRuns, AgreeWithTheReferenceOnAGpu) { run_random_operations("cuda", 60); }

TEST(RandomRouterRuns, AgreeWithTheReferenceInTheSimulator) {
  run_random_operations("sim", 3, kRouters);
}
TEST(RandomRouterRuns, AgreeWithTheReferenceOnAGpu) { run_random_operations("cuda", 60, kRouters); }

}  // namespace
}  // namespace moejit::testing
