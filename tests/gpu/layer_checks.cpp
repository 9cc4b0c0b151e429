// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/layer_checks.h"

#include "runtime/check/check_plan.h"
#include "runtime/reference/layouts.h"
#include "tests/support/layer_inputs.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>

namespace moejit::testing {
namespace {

using compiler::DType;
using compiler::Pass;
using reference::LayerInputs;

// What the layer was given, in the plan's dtypes.
runtime::TensorMap given_tensors(const TestLayer& test, const LayerInputs& inputs,
                                 const std::vector<uint16_t>& dy) {
  const compiler::Plan& plan = test.plan();
  const compiler::Layer& layer = *plan.layer;
  const int64_t tokens = inputs.tokens, experts = layer.local_experts, hidden = layer.hidden;
  const int64_t intermediate = layer.intermediate, columns = w1_sections(layer) * intermediate;
  runtime::TensorMap given = {
      {"x", runtime::make_tensor(DType::kBF16, {tokens, hidden}, inputs.x)},
      {"w1", runtime::make_tensor(DType::kBF16, {experts, columns, hidden}, inputs.w1)},
      {"w2", runtime::make_tensor(DType::kBF16, {experts, hidden, intermediate}, inputs.w2)},
      {"dy", runtime::make_tensor(DType::kBF16, {tokens, hidden}, dy)}};
  if (has_separate_gate_up(layer)) {
    given.erase("w1");
    for (const auto& [name, section] : {std::pair("w1_gate", 0), std::pair("w1_up", 1)})
      given[name] =
          runtime::make_tensor(DType::kBF16, {experts, intermediate, hidden},
                               reference::section_of<uint16_t>(
                                   inputs.w1, section, static_cast<size_t>(intermediate * hidden)));
  }
  given.merge(routing_tensors(plan, inputs));
  given.insert(test.states().begin(), test.states().end());
  if (!inputs.b1.empty()) {
    given["b1"] = runtime::make_tensor(DType::kBF16, {experts, columns}, inputs.b1);
    given["b2"] = runtime::make_tensor(DType::kBF16, {experts, hidden}, inputs.b2);
  }
  return given;
}

using Calls = std::vector<std::string_view>;

Calls calls_of(const std::vector<Pass>& passes) {
  Calls calls = {"update_weights"};
  for (const Pass pass : passes) calls.push_back(pass == Pass::kForward ? "forward" : "backward");
  return calls;
}

// Returns the tensors that kernels of these calls write, but for the status word.
std::set<std::string> written_tensors(const compiler::Plan& plan, const Calls& calls) {
  std::set<std::string> names;
  for (const compiler::CallPlan& call : plan.calls) {
    if (std::ranges::count(calls, call.name) == 0) continue;
    for (const compiler::CallStep& step : call.steps)
      for (const compiler::TensorPlan& tensor : plan.tensors)
        if (writes(plan.kernels[step.index], tensor.name)) names.insert(tensor.name);
  }
  names.erase("status");
  return names;
}

}  // namespace

std::size_t expect_reference(TestLayer& layer, const LayerInputs& inputs,
                             const std::vector<uint16_t>& dy, const std::vector<Pass>& passes) {
  const Calls calls = calls_of(passes);
  const auto checks =
      check::check_plan(layer.plan(), calls, given_tensors(layer, inputs, dy), layer.results());
  std::set<std::string> unseen = written_tensors(layer.plan(), calls);
  for (const check::TensorCheck& check : checks) {
    EXPECT_TRUE(check.has_passed) << check.tensor << ": " << check.verdict << "; " << check.message;
    unseen.erase(check.tensor);
  }
  EXPECT_EQ(unseen, std::set<std::string>{});
  EXPECT_EQ(layer.damage(), std::vector<std::string>{});
  return checks.size();
}

std::vector<std::string> unseen_damage(TestLayer& layer, const LayerInputs& inputs,
                                       const std::vector<uint16_t>& dy,
                                       const std::vector<Pass>& passes) {
  const Calls calls = calls_of(passes);
  const runtime::TensorMap given = given_tensors(layer, inputs, dy);
  runtime::TensorMap results = layer.results();
  std::vector<std::string> unseen;
  for (const std::string& name : written_tensors(layer.plan(), calls)) {
    runtime::HostTensor& tensor = results.at(name);
    // The highest byte of the first element, which belongs to the first row of an expert.
    std::byte& byte = tensor.bytes[static_cast<std::size_t>(size_bytes(tensor.dtype)) - 1];
    const std::byte kept = byte;
    byte ^= std::byte{0x41};
    // Each kernel is compared on what it read itself: those that read the tensor say nothing of it.
    const auto checks = check::check_plan(layer.plan(), calls, given, results, name);
    const bool is_seen = std::ranges::any_of(checks, [&](const check::TensorCheck& check) {
      return check.tensor == name && !check.has_passed;
    });
    if (!is_seen) unseen.push_back(name);
    byte = kept;
  }
  return unseen;
}

}  // namespace moejit::testing
