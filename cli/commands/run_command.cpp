// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/kernel_commands.h"
#include "cli/commands/layer_file.h"
#include "cli/commands/run_calls.h"
#include "cli/commands/run_group.h"
#include "cli/commands/run_report.h"
#include "cli/commands/run_steps.h"
#include "cli/commands/tuning_records.h"
#include "cli/terminal/output.h"
#include "compiler/call_order.h"
#include "compiler/group_plan.h"
#include "runtime/check/check_plan.h"
#include "runtime/checkpoint/safetensors_file.h"
#include "runtime/measure/kernel_timer.h"
#include "runtime/trial/open_target.h"
#include "runtime/trial/routing_tensors.h"
#include "runtime/trial/trial.h"

#include <fmt/core.h>
#include <optional>
#include <utility>

namespace moejit::cli {
namespace {

using runtime::TensorMap;

using compiler::Plan;
using trial::Trial;

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

// Refuses options that only layers have.
Result<void> check_operation_options(const RunCommand& command, std::string_view operation) {
  const std::pair<bool, const char*> of_layers[] = {
      {command.ranks > 0, "--ranks"},
      {command.pass == "backward", "--pass backward"},
      {command.dump_intermediates, "--dump-intermediates"},
      {!command.inputs.checkpoint.shards.empty(), "--weights"}};
  for (const auto& [is_given, option] : of_layers)
    if (is_given)
      return fail(Stage::kCommand, ErrorCode::kUsage,
                  fmt::format("{} is for layers, and {} describes the operation {}", option,
                              command.layer, operation),
                  fmt::format("leave {} out", option));
  return {};
}

bool keeps_intermediates(const RunCommand& command) {
  return command.check || command.dump_intermediates;
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

// A run of a layer or an operation on one device.
struct Run {
  const RunCommand& command;
  const Plan& plan;
  RunCalls calls;
  trial::OperationCall call = {};  // of a layer: its tokens, rows and inputs
  RunReport report = {};
};

Result<trial::OperationCall> load_call(const Plan& plan, const trial::InputOptions& options) {
  if (plan.operation) return trial::load_operation_call(plan, options);
  MOEJIT_TRY_ASSIGN(TensorMap inputs, trial::load_inputs(plan, options));
  const compiler::CallRows rows = trial::count_call_rows(*plan.layer, inputs);
  return trial::OperationCall{
      .dims = {.tokens = rows.tokens}, .rows = rows, .inputs = std::move(inputs)};
}

Result<std::unique_ptr<Trial>> open_trial(const Run& run, runtime::Engine& engine,
                                          runtime::Device& device) {
  return run.plan.layer ? Trial::create(run.plan, engine, device, run.call.inputs)
                        : Trial::create(run.plan, engine, device, run.call);
}

// Finds the scales of the next step and returns the states after it; none if no call does.
Result<TensorMap> update_scales(const Run& run, Trial& trial, runtime::LaunchObserver& observer) {
  if (run.calls.scales.empty()) return TensorMap{};
  MOEJIT_TRY(make_calls(trial, run.calls.scales, &observer));
  return read_states(trial, 0);
}

void describe_sizes(Run& run) {
  if (run.plan.operation) return describe_sizes(run.plan, run.call, run.report);
  run.report.tokens = run.call.dims.tokens;
  run.report.rows = run.call.rows.padded;
}

void check_results(Run& run, const TensorMap& results, const TensorMap& states) {
  const std::vector<std::string_view> passes = names_of(run.plan, run.calls.passes),
                                      scales = names_of(run.plan, run.calls.scales);
  run.report.checks = check::check_plan(run.plan, passes, run.call.inputs, results);
  for (check::TensorCheck& check : check::check_plan(run.plan, scales, results, states)) {
    check.tensor += kOfNextStep;
    run.report.checks.push_back(std::move(check));
  }
}

// Makes the calls and returns their results.
Result<TensorMap> run_calls(Run& run, Trial& trial, runtime::Device& device,
                            StepProgress& progress) {
  const RunCommand& command = run.command;
  measure::KernelTimer timer(device);
  RunObserver observer(timer, progress, run.plan);
  MOEJIT_TRY(make_calls(trial, run.calls.passes, &observer));
  MOEJIT_TRY_ASSIGN(const std::vector<uint32_t> status, trial.status());
  run.report.status = status.front();
  MOEJIT_TRY_ASSIGN(TensorMap results,
                    read_results(trial, run.calls, 0, keeps_intermediates(command)));
  MOEJIT_TRY_ASSIGN(TensorMap states, update_scales(run, trial, observer));
  MOEJIT_TRY_ASSIGN(run.report.times, timer.take_samples());
  describe_sizes(run);
  progress.start(kCheckStep);
  if (run.plan.operation) {
    trial::cut_rows(run.plan, run.call, run.call.inputs);
    trial::cut_rows(run.plan, run.call, results);
  }
  run.report.is_checked = command.check;
  if (command.check) check_results(run, results, states);
  for (auto& [name, state] : states) results[name] = std::move(state);
  return results;
}

std::optional<trial::RandomRouting> routing_of(const RunCommand& command, const Plan& plan) {
  if (plan.operation) return trial::routing_of(plan, command.inputs);
  if (!command.inputs.input_path.empty()) return std::nullopt;
  return command.inputs.routing;
}

Result<void> run_on_one_device(const RunCommand& command, const Description& described,
                               Terminal& terminal) {
  Description description = described;
  if (auto* const layer = std::get_if<compiler::Layer>(&description))
    choose_passes(*layer, passes_of(command));
  MOEJIT_TRY_ASSIGN(const trial::OpenedTarget target,
                    trial::open_target(command.target, command.inputs.seed,
                                       "run it in the simulator: --target sim"));
  terminal.note(trial::target_text(target));
  MOEJIT_TRY_ASSIGN(const auto tuning, read_tuning_records(command.tuning, target.device.get()));
  MOEJIT_TRY_ASSIGN(const Plan plan,
                    plan_description(description, target.device->target(),
                                     {.keep_intermediates = keeps_intermediates(command),
                                      .tuning = tuning.get()}));
  MOEJIT_TRY_ASSIGN(RunCalls calls,
                    choose_calls(plan, command, plan.operation ? "run" : command.pass));
  tell_calls(plan, calls, terminal);
  Run run{.command = command, .plan = plan, .calls = std::move(calls)};
  run.report.target = target.description;
  run.report.output = command.output;
  run.report.calls = run.calls.names(plan);
  run.report.kernels = kernels_of(plan, run.calls.all());
  run.report.routing = routing_of(command, plan);
  run.report.tuning = tuning_use(plan, tuning.get());
  tell_tuning(run.report.tuning, terminal);
  std::optional<trial::SimulatedTime> time;
  if (plan.layer) {
    MOEJIT_TRY_ASSIGN(time, estimate_run(command, plan, run.report.kernels, terminal));
  }
  StepProgress progress(terminal, run_steps(plan, run.report.kernels, time, command.check));
  progress.start(kDataStep);
  trial::InputOptions inputs = command.inputs;
  inputs.calls = run.report.calls;
  MOEJIT_TRY_ASSIGN(run.call, load_call(plan, inputs));
  trial::CacheOptions cache = command.cache;
  cache.build_arguments = build_arguments(command, described, plan);
  MOEJIT_TRY_ASSIGN(const auto engine, trial::open_engine(cache, terminal.warner()));
  progress.start(kPrepareStep);
  MOEJIT_TRY_ASSIGN(const auto trial, open_trial(run, *engine, *target.device));
  MOEJIT_TRY_ASSIGN(TensorMap results, run_calls(run, *trial, *target.device, progress));
  if (plan.layer)
    results = tensors_for_file(plan, run.calls, std::move(results), command.dump_intermediates);
  results.erase("status");  // the report has it
  if (!command.output.empty()) MOEJIT_TRY(checkpoint::write_safetensors(command.output, results));
  run.report.counters = engine->counters();
  return finish_run(plan, run.report, command, terminal);
}

}  // namespace

Result<void> run_run(const RunCommand& command, Terminal& terminal) {
  MOEJIT_TRY(check_options(command));
  MOEJIT_TRY(check_output(command.output));
  MOEJIT_TRY_ASSIGN(const Description description, read_layer_or_operation(command.layer));
  const auto* const layer = std::get_if<compiler::Layer>(&description);
  if (layer == nullptr) {
    const auto& operation = std::get<compiler::OperationDescription>(description);
    MOEJIT_TRY(check_operation_options(command, operation.name));
  } else {
    if (command.ranks > 0) return run_group(command, *layer, terminal);
    MOEJIT_TRY(check_is_of_one_rank(*layer));
  }
  return run_on_one_device(command, description, terminal);
}

}  // namespace moejit::cli
