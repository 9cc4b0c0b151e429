// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/run.h"

#include "cli/commands/run_checks.h"
#include "cli/commands/run_steps.h"
#include "cli/terminal/output.h"
#include "compiler/call_order.h"
#include "runtime/measure/kernel_timer.h"
#include "runtime/trial/group_inputs.h"
#include "runtime/trial/operation_inputs.h"
#include "runtime/trial/trial.h"

#include <utility>

namespace moejit::cli {
namespace {

using compiler::Plan;
using runtime::TensorMap;
using trial::Trial;

// A group's results are compared with the results of one rank, whose plan keeps its intermediates.
bool keeps_intermediates(const RunCommand& command) {
  return command.dump_intermediates || (command.check && command.ranks == 0);
}

// Returns the arguments of `moejit build` that make the kernels of this run from the file.
std::string build_arguments(const RunCommand& command, const Description& described,
                            const Plan& planned) {
  const std::string file = shell_word(command.layer) + tuning_words(command.tuning);
  const auto* const layer = std::get_if<compiler::Layer>(&described);
  if (layer == nullptr) return file;
  const bool has_other_passes = layer->passes != planned.layer->passes;
  return file + (has_other_passes               ? " --variants all"
                 : keeps_intermediates(command) ? " --with-intermediates"
                                                : "");
}

void describe_sizes(Run& run, const Trial& trial) {
  if (run.plan().operation) return describe_sizes(run.plan(), run.inputs.front(), run.report);
  for (int32_t rank = 0; rank < trial.ranks(); ++rank)
    run.report.tokens.push_back(trial.tokens(rank));
  if (!run.plan().group) run.report.rows = run.inputs.front().rows.padded;
}

// Makes the calls and returns the results of each rank, with states as the next step finds them.
Result<std::vector<TensorMap>> run_calls(Run& run, Trial& trial, runtime::Engine& engine,
                                         StepProgress& progress) {
  const Plan& plan = run.plan();
  measure::KernelTimer timer(run.opened.devices->device(0));
  RunObserver observer(timer, progress, plan);
  runtime::LaunchObserver* const observes = plan.group ? nullptr : &observer;
  MOEJIT_TRY(make_calls(trial, run.calls.passes, observes));
  MOEJIT_TRY_ASSIGN(run.report.status, trial.status());
  std::vector<TensorMap> results, states;
  for (int32_t rank = 0; rank < trial.ranks(); ++rank) {
    MOEJIT_TRY_ASSIGN(results.emplace_back(),
                      read_results(trial, run.calls, rank, keeps_intermediates(run.command)));
  }
  MOEJIT_TRY(make_calls(trial, run.calls.scales, observes));
  for (int32_t rank = 0; rank < trial.ranks(); ++rank) {
    MOEJIT_TRY_ASSIGN(states.emplace_back(), read_states(trial, run.calls, rank));
  }
  MOEJIT_TRY_ASSIGN(run.report.times, timer.take_samples());
  describe_sizes(run, trial);
  progress.start(kCheckStep);
  if (plan.operation) {
    trial::cut_rows(plan, run.inputs.front(), run.inputs.front().tensors);
    trial::cut_rows(plan, run.inputs.front(), results.front());
  }
  if (run.command.check && plan.group) {
    MOEJIT_TRY_ASSIGN(run.report.checks, check_ranks(run.command, plan, run.inputs, results,
                                                     run.report.tokens, engine));
  } else if (run.command.check) {
    run.report.checks =
        check_calls(plan, run.calls, run.inputs.front().tensors, results.front(), states.front());
  }
  run.report.is_checked = run.command.check && !(plan.group && run.report.checks.empty());
  for (std::size_t rank = 0; rank < results.size(); ++rank)
    for (auto& [name, state] : states[rank]) results[rank][name] = std::move(state);
  return results;
}

}  // namespace

Result<Run> open_run(const RunCommand& command, const Description& described) {
  Description description = described;
  if (auto* const layer = std::get_if<compiler::Layer>(&description); layer && command.call.empty())
    choose_passes(*layer, command.pass);
  MOEJIT_TRY_ASSIGN(
      OpenedPlans opened,
      open_plans(command, description, {.keep_intermediates = keeps_intermediates(command)},
                 "run it in the simulator: --target sim"));
  const Plan& plan = opened.plans.front();
  MOEJIT_TRY_ASSIGN(RunCalls calls,
                    choose_calls(plan, command, plan.operation ? "run" : command.pass));
  RunReport report{.target = opened.devices->description(),
                   .random = routed_at_random(plan, command.inputs),
                   .calls = calls.names(plan),
                   .kernels = kernels_of(plan, calls.all()),
                   .output = command.output,
                   .tuning = opened.tuning};
  return Run{.command = command,
             .opened = std::move(opened),
             .calls = std::move(calls),
             .report = std::move(report)};
}

Result<std::vector<TensorMap>> complete_run(Run& run, const Description& described,
                                            Terminal& terminal) {
  const RunCommand& command = run.command;
  const Plan& plan = run.plan();
  MOEJIT_TRY_ASSIGN(const std::optional<trial::SimulatedTime> time,
                    estimate_run(command, plan, run.report.kernels, terminal));
  StepProgress progress(terminal, run_steps(plan, run.report.kernels, time, command.check));
  progress.start(kDataStep);
  trial::InputOptions inputs = command.inputs;
  inputs.calls = run.report.calls;
  MOEJIT_TRY_ASSIGN(run.inputs, load_inputs(run.opened.plans, inputs));
  trial::CacheOptions cache = command.cache;
  if (!plan.group && !command.layer.empty())
    cache.build_arguments = build_arguments(command, described, plan);
  MOEJIT_TRY_ASSIGN(const auto engine, trial::open_engine(cache, terminal.warner()));
  progress.start(kPrepareStep);
  MOEJIT_TRY_ASSIGN(const auto trial,
                    Trial::create(run.opened.plans, *engine, *run.opened.devices, run.inputs));
  MOEJIT_TRY_ASSIGN(std::vector<TensorMap> results, run_calls(run, *trial, *engine, progress));
  run.report.counters = engine->counters();
  return results;
}

}  // namespace moejit::cli
