// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/kernel_commands.h"
#include "cli/commands/layer_file.h"
#include "cli/commands/run_group.h"
#include "cli/commands/run_operation.h"
#include "cli/commands/run_report.h"
#include "cli/commands/run_steps.h"
#include "cli/commands/tuning_records.h"
#include "cli/terminal/output_file.h"
#include "cli/terminal/shell_word.h"
#include "compiler/group_plan.h"
#include "runtime/check/check_plan.h"
#include "runtime/checkpoint/write_safetensors.h"
#include "runtime/compile_budget.h"
#include "runtime/measure/kernel_timer.h"
#include "runtime/trial/call_rows.h"
#include "runtime/trial/colwise_slices.h"
#include "runtime/trial/layer_session.h"
#include "runtime/trial/open_engine.h"
#include "runtime/trial/open_target.h"
#include "runtime/trial/padded_halves.h"
#include "runtime/trial/random_layer_inputs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/core.h>
#include <optional>

namespace moejit::cli {
namespace {

using runtime::HostTensor;
using runtime::TensorMap;

using compiler::TensorRole;

Result<void> check_options(const RunCommand& command) {
  if (command.inputs.checkpoint.first_expert < 0)
    return fail(Stage::kCommand, ErrorCode::kUsage,
                fmt::format("--first-expert is {}, wanted 0 or more",
                            command.inputs.checkpoint.first_expert));
  if (command.dump_intermediates && command.output.empty())
    return fail(Stage::kCommand, ErrorCode::kUsage,
                "--dump-intermediates writes to the file of --output, which is missing");
  return command.output.empty() ? Result<void>{} : checkpoint::check_writable(command.output);
}

bool is_backward(const RunCommand& command) { return command.pass == "backward"; }
bool keeps_intermediates(const RunCommand& command) {
  return command.check || command.dump_intermediates;
}

// Returns the arguments of `moejit build` that make the kernels of this run from the layer's file.
std::string build_arguments(const RunCommand& command, const std::vector<compiler::Pass>& described,
                            const std::vector<compiler::Pass>& wanted) {
  return shell_word(command.layer) + tuning_words(command.tuning) +
         (described != wanted            ? " --variants all"
          : keeps_intermediates(command) ? " --with-intermediates"
                                         : "");
}

// Returns whether a tensor is a result of the layer: an output, or the state for the next step. The
// status word goes into the report instead.
bool is_result(const compiler::TensorPlan& tensor) {
  return (tensor.role == TensorRole::kOutput || tensor.role == TensorRole::kState) &&
         tensor.name != "status";
}

// Returns the results and, on request, other tensors that kernels wrote: quantized weights and
// intermediates.
Result<TensorMap> read_results(trial::LayerSession& session, bool with_intermediates) {
  TensorMap results;
  for (const compiler::TensorPlan& tensor : session.plan().tensors) {
    if (tensor.role == TensorRole::kInput || tensor.role == TensorRole::kWeight) continue;
    if (tensor.name == "status" || (!is_result(tensor) && !with_intermediates)) continue;
    MOEJIT_TRY_ASSIGN(HostTensor host, session.read(tensor));
    results.emplace(tensor.name, std::move(host));
  }
  return results;
}

Result<void> write_output(const RunCommand& command, const compiler::LayerPlan& plan,
                          TensorMap results) {
  if (command.output.empty()) return {};
  if (command.dump_intermediates) {
    trial::slice_colwise(results);
    if (plan.layer.gate_up_layout == compiler::GateUpLayout::kInterleaved &&
        !compiler::has_scales(plan.layer.recipe.weights))
      trial::put_gate_first(results, plan.layer.intermediate);
    trial::drop_padding_of_halves(results, plan.layer.intermediate,
                                  compiler::padded_intermediate(plan.layer));
  } else {
    std::erase_if(results, [&](const auto& entry) {
      const compiler::TensorPlan* const tensor = compiler::find_tensor(plan, entry.first);
      return tensor == nullptr || !is_result(*tensor);
    });
  }
  return checkpoint::write_safetensors(command.output, results);
}

// Finds the scales of the next step and returns the states after it; none if the recipe has no
// history.
Result<TensorMap> update_scales(const RunCommand& command, trial::LayerSession& session,
                                runtime::LaunchObserver& observer) {
  TensorMap states;
  if (!session.plan().layer.recipe.has_history) return states;
  MOEJIT_TRY(session.update_scales(compiler::Pass::kForward, &observer));
  if (is_backward(command)) MOEJIT_TRY(session.update_scales(compiler::Pass::kBackward, &observer));
  for (const compiler::TensorPlan& tensor : session.plan().tensors) {
    if (tensor.role != TensorRole::kState) continue;
    MOEJIT_TRY_ASSIGN(HostTensor host, session.read(tensor));
    states.emplace(tensor.name, std::move(host));
  }
  return states;
}

constexpr std::array kScalePhases = {compiler::Phase::kForwardScales,
                                     compiler::Phase::kBackwardScales};

std::vector<compiler::Phase> phases_of(const RunCommand& command) {
  using enum compiler::Phase;
  if (is_backward(command)) return {kWeights, kForward, kBackward};
  return {kWeights, kForward};
}

Result<TensorMap> run_session(const RunCommand& command, const TensorMap& inputs,
                              trial::LayerSession& session, runtime::Device& device,
                              StepProgress& progress, RunReport& report) {
  measure::KernelTimer timer(device);
  RunObserver observer(timer, progress, session.plan());
  MOEJIT_TRY(session.update_weights(&observer));
  MOEJIT_TRY(session.forward(&observer));
  if (is_backward(command))
    MOEJIT_TRY(session.backward(compiler::GradientMode::kOverwrite, &observer));
  MOEJIT_TRY_ASSIGN(report.status, session.status());
  report.rows = trial::count_call_rows(session.plan().layer, inputs).padded;
  MOEJIT_TRY_ASSIGN(TensorMap results, read_results(session, keeps_intermediates(command)));
  report.tokens = session.tokens();
  report.is_checked = command.check;
  MOEJIT_TRY_ASSIGN(TensorMap states, update_scales(command, session, observer));
  MOEJIT_TRY_ASSIGN(report.times, timer.take_samples());
  progress.start(kCheckStep);
  if (command.check) {
    report.checks = check::check_plan(session.plan(), phases_of(command), inputs, results);
    for (check::TensorCheck& check :
         check::check_plan(session.plan(), kScalePhases, results, states)) {
      check.tensor += kOfNextStep;
      report.checks.push_back(std::move(check));
    }
  }
  for (auto& [name, state] : states) results[name] = std::move(state);
  return results;
}

// Returns how many cores this process may use: a container with a quota has fewer than the machine.
int32_t free_cores() {
  const runtime::CompileBudget budget = runtime::compile_budget();
  const double quota = budget.cpu_quota.value_or(budget.cores);
  return std::max(std::min(budget.cores, static_cast<int32_t>(std::lround(quota))), 1);
}

trial::SimulatedTime estimate_random(const RunCommand& command, const compiler::LayerPlan& plan,
                                     int64_t tokens) {
  return trial::estimate_simulated_time(
      plan, trial::random_topk_ids(plan.layer, tokens, command.inputs.seed, command.inputs.routing),
      {.makes_weights = command.inputs.checkpoint.shards.empty(),
       .is_checked = command.check,
       .cores = free_cores()});
}

// Estimates how long a run on random tokens takes in the simulator, and warns if that is long.
// Returns none for other runs: a GPU takes hardly any time, and a file has its own tokens.
Result<std::optional<trial::SimulatedTime>> estimate(const RunCommand& command,
                                                     const compiler::LayerPlan& plan,
                                                     const Terminal& terminal) {
  if (plan.target.kind != compiler::TargetKind::kSim || !command.inputs.input_path.empty())
    return std::nullopt;
  MOEJIT_TRY_ASSIGN(const int64_t tokens,
                    trial::random_token_count(plan.layer, command.inputs.tokens));
  const trial::SimulatedTime time = estimate_random(command, plan, tokens);
  if (!is_long(time.total())) return time;
  int64_t fewer = tokens / 2;
  while (fewer > 0 && is_long(estimate_random(command, plan, fewer).total())) fewer /= 2;
  terminal.warn(long_run_text(time.total(), fewer));
  return time;
}

Result<void> run_layer(const RunCommand& command, compiler::Layer layer, Terminal& terminal) {
  MOEJIT_TRY(check_is_of_one_rank(layer));
  const std::vector<compiler::Pass> described = layer.passes;
  layer.passes = {compiler::Pass::kForward};
  if (is_backward(command)) layer.passes.push_back(compiler::Pass::kBackward);
  MOEJIT_TRY_ASSIGN(const trial::OpenedTarget target,
                    trial::open_target(command.target, command.inputs.seed,
                                       "run it in the simulator: --target sim"));
  terminal.note(trial::target_text(target));
  MOEJIT_TRY_ASSIGN(const auto tuning, read_tuning_records(command.tuning, target.device.get()));
  MOEJIT_TRY_ASSIGN(const compiler::LayerPlan plan,
                    compiler::plan_layer(layer, target.device->target(),
                                         {.keep_intermediates = keeps_intermediates(command),
                                          .tuning = tuning.get()}));
  RunReport report;
  report.target = target.description;
  report.output = command.output;
  if (command.inputs.input_path.empty()) report.routing = command.inputs.routing;
  report.tuning = tuning_use(plan, tuning.get());
  tell_tuning(report.tuning, terminal);
  MOEJIT_TRY_ASSIGN(const std::optional<trial::SimulatedTime> time,
                    estimate(command, plan, terminal));
  StepProgress progress(terminal, run_steps(plan, time, command.check));
  progress.start(kDataStep);
  MOEJIT_TRY_ASSIGN(const TensorMap inputs, trial::load_inputs(plan, command.inputs));
  trial::CacheOptions cache = command.cache;
  cache.build_arguments = build_arguments(command, described, layer.passes);
  MOEJIT_TRY_ASSIGN(const std::unique_ptr<runtime::Engine> engine,
                    trial::open_engine(cache, terminal.warner()));
  progress.start(kPrepareStep);
  MOEJIT_TRY_ASSIGN(const std::unique_ptr<trial::LayerSession> session,
                    trial::LayerSession::create(plan, *engine, *target.device, inputs));
  MOEJIT_TRY_ASSIGN(const TensorMap results,
                    run_session(command, inputs, *session, *target.device, progress, report));
  MOEJIT_TRY(write_output(command, plan, results));
  report.counters = engine->counters();
  return finish_run(plan, report, command, terminal);
}

}  // namespace

Result<void> run_run(const RunCommand& command, Terminal& terminal) {
  MOEJIT_TRY(check_options(command));
  MOEJIT_TRY(check_output(command.output));
  MOEJIT_TRY_ASSIGN(Description description, read_layer_or_operation(command.layer));
  if (auto* const layer = std::get_if<compiler::Layer>(&description)) {
    if (command.ranks > 0) return run_group(command, *layer, terminal);
    return run_layer(command, std::move(*layer), terminal);
  }
  return run_operation(command, std::get<compiler::OperationDescription>(description), terminal);
}

}  // namespace moejit::cli
