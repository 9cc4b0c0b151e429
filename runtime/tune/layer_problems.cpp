// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"
#include "compiler/group_plan.h"
#include "runtime/trial/layer_inputs.h"
#include "runtime/trial/random_layer_inputs.h"
#include "runtime/tune/tune_problem.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::tune {
namespace {

using compiler::KernelPlan;
using compiler::Layer;
using compiler::Plan;
using compiler::PlanOptions;

Result<std::shared_ptr<const Plan>> plan_shared(const Layer& layer, const compiler::Target& target,
                                                const PlanOptions& options) {
  MOEJIT_TRY_ASSIGN(Plan plan, plan_layer(layer, target, options));
  return std::make_shared<const Plan>(std::move(plan));
}

Result<trial::CallInputs> load_inputs(const TunedLayer& tuned, const Plan& plan) {
  MOEJIT_TRY_ASSIGN(auto inputs, trial::load_layer_inputs(plan, {.tokens = tuned.measured_tokens(),
                                                                 .random = {tuned.seed},
                                                                 .is_measured = true}));
  return trial::call_of(std::move(inputs));
}

// Opens the layer, unless it is already open, and runs each of its kernels once.
Result<std::shared_ptr<trial::Trial>> open_layer(const TunedLayer& tuned, OpenedLayer& opened,
                                                 runtime::Engine& engine, runtime::Device& device) {
  if (opened.session != nullptr && opened.tuned == tuned) return opened.session;
  opened = {};
  MOEJIT_TRY_ASSIGN(const compiler::Plan plan, plan_layer(tuned.measured_layer(), device.target()));
  MOEJIT_TRY_ASSIGN(const trial::CallInputs inputs, load_inputs(tuned, plan));
  MOEJIT_TRY_ASSIGN(std::shared_ptr<trial::Trial> session,
                    trial::Trial::create(plan, engine, device, inputs));
  MOEJIT_TRY(session->call("update_weights"));
  MOEJIT_TRY(session->call("forward"));
  if (has_backward(tuned.layer)) MOEJIT_TRY(session->call("backward"));
  opened = {tuned, session};
  return session;
}

bool has_problem(const Plan& plan, const std::string& problem) {
  return std::ranges::count(plan.kernels, problem, &KernelPlan::problem) > 0;
}

}  // namespace

compiler::Layer TunedLayer::measured_layer() const {
  return is_of_group(layer) ? layer_of_experts(layer) : layer;
}

int64_t TunedLayer::measured_tokens() const {
  return is_of_group(layer) ? layer.expert_parallel.ranks * tokens : tokens;
}

Result<std::vector<std::string>> unmeasured_kernels(const TunedLayer& tuned,
                                                    const compiler::Target& target) {
  std::vector<std::string> kernels;
  if (!is_of_group(tuned.layer)) return kernels;
  MOEJIT_TRY_ASSIGN(const Plan plan, plan_layer(tuned.measured_layer(), target));
  MOEJIT_TRY_ASSIGN(const Plan described, plan_layer(tuned.layer, target));
  for (const KernelPlan& kernel : described.kernels)
    if (!kernel.problem.empty() && !has_problem(plan, kernel.problem))
      kernels.push_back(fmt::format("{} {}", tuned.layer.name, kernel.operation));
  return kernels;
}

Result<std::vector<TuneProblem>> problems_of(const TunedLayer& tuned,
                                             const compiler::Target& target,
                                             const std::shared_ptr<OpenedLayer>& opened) {
  const Layer layer = tuned.measured_layer();
  MOEJIT_TRY_ASSIGN(const Plan plan, plan_layer(layer, target, {.list_candidates = true}));
  MOEJIT_TRY_ASSIGN(const Plan described, plan_layer(tuned.layer, target));
  std::vector<TuneProblem> problems;
  for (std::size_t i = 0; i < plan.kernels.size(); ++i) {
    const KernelPlan& kernel = plan.kernels[i];
    // For the exchange, a rank of a group has other kernels than the measured layer.
    if (kernel.problem.empty() || !has_problem(described, kernel.problem)) continue;
    TuneProblem problem{.name = kernel.problem,
                        .subject = fmt::format("{} {}", layer.name, kernel.operation),
                        .step_us = estimated_us(kernel, tuned.measured_tokens()),
                        .candidates = kernel.candidates,
                        .index = i};
    problem.plan = [layer, target](const PlanOptions& options) {
      return plan_shared(layer, target, options);
    };
    problem.open = [tuned, opened, problem](runtime::Engine& engine,
                                            runtime::Device& device) -> Result<OpenedKernel> {
      MOEJIT_TRY_ASSIGN(auto session, open_layer(tuned, *opened, engine, device));
      return open_kernel(problem, std::move(session), engine, device);
    };
    problems.push_back(std::move(problem));
  }
  return problems;
}

}  // namespace moejit::tune
