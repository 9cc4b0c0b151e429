// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/run_steps.h"

#include "runtime/compile_budget.h"
#include "runtime/trial/random_layer_inputs.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>

namespace moejit::cli {
namespace {

// Returns how many cores this process may use: a container with a quota has fewer than the machine.
int32_t free_cores() {
  const runtime::CompileBudget budget = runtime::compile_budget();
  const double quota = budget.cpu_quota.value_or(budget.cores);
  return std::max(std::min(budget.cores, static_cast<int32_t>(std::lround(quota))), 1);
}

trial::SimulatedTime estimate_random(const RunCommand& command, const compiler::Plan& plan,
                                     const std::vector<size_t>& kernels, int64_t tokens) {
  return trial::estimate_simulated_time(
      plan, trial::random_topk_ids(*plan.layer, tokens, command.inputs.random),
      {.makes_weights = command.inputs.checkpoint.shards.empty(),
       .is_checked = command.check,
       .cores = free_cores(),
       .kernels = kernels});
}

}  // namespace

std::vector<Step> run_steps(const compiler::Plan& plan, const std::vector<size_t>& kernels,
                            const std::optional<trial::SimulatedTime>& time, bool is_checked) {
  std::vector<Step> steps = {{kDataStep, time ? time->random_data : 0.0}, {kPrepareStep}};
  for (const size_t kernel : kernels)
    steps.push_back({plan.kernels[kernel].operation, time ? time->kernels[kernel] : 0.0});
  if (is_checked) steps.push_back({kCheckStep, time ? time->check : 0.0});
  return steps;
}

bool is_long(double seconds) { return seconds >= 30.0; }

std::string long_run_text(double seconds, int64_t most_tokens) {
  const std::string tokens = most_tokens > 0 ? fmt::format("--tokens {}, or ", most_tokens) : "";
  return fmt::format(
      "this takes about {} in the simulator; try {}fewer experts, as in "
      "docs/examples/layers/deepseek-v3-slice.json",
      duration_text(seconds), tokens);
}

Result<std::optional<trial::SimulatedTime>> estimate_run(const RunCommand& command,
                                                         const compiler::Plan& plan,
                                                         const std::vector<size_t>& kernels,
                                                         const Terminal& terminal) {
  const bool is_estimated = plan.target.kind == compiler::TargetKind::kSim && plan.layer &&
                            !plan.group && command.inputs.input_path.empty();
  if (!is_estimated) return std::nullopt;
  MOEJIT_TRY_ASSIGN(const int64_t tokens, random_size(plan, command.inputs));
  const trial::SimulatedTime time = estimate_random(command, plan, kernels, tokens);
  if (!is_long(time.total())) return time;
  int64_t fewer = tokens / 2;
  while (fewer > 0 && is_long(estimate_random(command, plan, kernels, fewer).total())) fewer /= 2;
  terminal.warn(long_run_text(time.total(), fewer));
  return time;
}

Result<void> RunObserver::before(size_t kernel_index) {
  progress_.start(plan_.kernels[kernel_index].operation);
  return timer_.before(kernel_index);
}

}  // namespace moejit::cli
