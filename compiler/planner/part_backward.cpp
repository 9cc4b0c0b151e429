// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/dataflow.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

// The activation is computed again where h1 is: it is smaller, and deferred in its place.
bool is_made_of_h1(Operation operation) {
  return operation == Operation::kActivation || operation == Operation::kActivationQuantize;
}

void rename_in_backward(Plan& plan, const std::string& from, const std::string& to) {
  for (KernelPlan& kernel : plan.kernels) {
    if (kernel.phase != Phase::kBackward) continue;
    for (KernelArgument& argument : kernel.arguments)
      if (argument.tensor == from) argument.tensor = to;
    for (TensorMapPlan& map : kernel.tensor_maps)
      if (map.tensor == from) map.tensor = to;
  }
}

}  // namespace

void name_deferred(Plan& plan) {
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    TensorPlan again = plan.tensors[i];
    if (again.role != TensorRole::kDeferred || !is_used(plan, again, Phase::kForward)) continue;
    again.name = fmt::format("recomputed_{}", again.name);
    rename_in_backward(plan, plan.tensors[i].name, again.name);
    plan.tensors[i].role = TensorRole::kWorkspace;
    plan.tensors.push_back(std::move(again));
  }
}

void part_backward(std::vector<Step>& steps, const Layer& layer) {
  if (!layer.backward_halves) return;
  const auto backward = std::ranges::find(steps, Phase::kBackward, &Step::phase);
  WantedTensors wanted({"dx", "dprobs"});
  for (auto step = steps.end(); step != backward;) {
    --step;
    const bool is_data = wanted.need(tensors_of(*step, layer)) ||
                         (is_made_of_h1(step->operation) && wanted.has("h1"));
    step->half = is_data ? BackwardHalf::kData : BackwardHalf::kWeights;
  }
  const auto weights = std::stable_partition(
      backward, steps.end(), [](const Step& step) { return step.half == BackwardHalf::kData; });
  // dy has fewer rows than what the experts get of it, and is deferred for its transpose.
  const bool has_rows = std::any_of(backward, weights, [&](const Step& step) {
    const StepTensors tensors = tensors_of(step, layer);
    return std::ranges::count(tensors.writes, "grad_permuted") > 0;
  });
  const bool reads_rows = std::any_of(weights, steps.end(), [](const Step& step) {
    return step.operation == Operation::kFc2BiasGrad;
  });
  if (gathers_tokens(layer) && has_rows && reads_rows)
    steps.insert(weights, {Phase::kBackward, Operation::kPermutePadGrad, BackwardHalf::kWeights});
}

}  // namespace moejit::compiler
