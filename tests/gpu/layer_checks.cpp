// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/layer_checks.h"

#include "cli/check/check_backward.h"
#include "cli/check/check_forward.h"
#include "cli/tensors/routing_tensors.h"

#include <gtest/gtest.h>

namespace moejit::testing {
namespace {

using compiler::DType;
using compiler::Pass;
using reference::LayerInputs;

// What the layer was given, in the plan's dtypes.
cli::TensorMap given_tensors(const compiler::LayerPlan& plan, const LayerInputs& inputs,
                             const std::vector<uint16_t>& dy) {
  const compiler::Layer& layer = plan.layer;
  const int64_t tokens = inputs.tokens, experts = layer.local_experts, hidden = layer.hidden;
  const int64_t intermediate = layer.intermediate, columns = w1_sections(layer) * intermediate;
  cli::TensorMap given = {
      {"x", cli::make_tensor(DType::kBF16, {tokens, hidden}, inputs.x)},
      {"topk_ids", cli::make_topk_ids(find_tensor(plan, "topk_ids")->dtype, {tokens, layer.top_k},
                                      {inputs.topk_ids.begin(), inputs.topk_ids.end()})},
      {"topk_probs", cli::make_topk_probs(find_tensor(plan, "topk_probs")->dtype,
                                          {tokens, layer.top_k}, inputs.topk_probs)},
      {"w1", cli::make_tensor(DType::kBF16, {experts, columns, hidden}, inputs.w1)},
      {"w2", cli::make_tensor(DType::kBF16, {experts, hidden, intermediate}, inputs.w2)},
      {"dy", cli::make_tensor(DType::kBF16, {tokens, hidden}, dy)}};
  if (!inputs.b1.empty()) {
    given["b1"] = cli::make_tensor(DType::kBF16, {experts, columns}, inputs.b1);
    given["b2"] = cli::make_tensor(DType::kBF16, {experts, hidden}, inputs.b2);
  }
  return given;
}

}  // namespace

std::size_t expect_reference(TestLayer& layer, const LayerInputs& inputs,
                             const std::vector<uint16_t>& dy, const std::vector<Pass>& passes) {
  const compiler::Layer& described = layer.plan().layer;
  const cli::TensorMap given = given_tensors(layer.plan(), inputs, dy), results = layer.results();
  std::size_t compared = 0;
  for (const Pass pass : passes) {
    const auto checks = pass == Pass::kForward ? cli::check_forward(described, given, results)
                                               : cli::check_backward(described, given, results);
    for (const cli::TensorCheck& check : checks)
      EXPECT_TRUE(check.has_passed)
          << check.tensor << ": " << check.verdict << "; " << check.message;
    compared += checks.size();
  }
  EXPECT_EQ(layer.damage(), std::vector<std::string>{});
  return compared;
}

}  // namespace moejit::testing
