// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/run_operation.h"

#include "cli/commands/run_report.h"
#include "cli/commands/run_steps.h"
#include "cli/commands/tuning_records.h"
#include "cli/terminal/shell_word.h"
#include "runtime/check/check_plan.h"
#include "runtime/checkpoint/write_safetensors.h"
#include "runtime/measure/kernel_timer.h"
#include "runtime/trial/open_engine.h"
#include "runtime/trial/open_target.h"
#include "runtime/trial/operation_inputs.h"
#include "runtime/trial/operation_session.h"

#include <algorithm>
#include <fmt/core.h>
#include <string_view>
#include <utility>

namespace moejit::cli {
namespace {

using runtime::elements;
using runtime::TensorMap;

using compiler::CallDim;
using compiler::OperationPlan;

// Refuses options that only layers have.
Result<void> check_options(const RunCommand& command, std::string_view operation) {
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

bool has_dim(const OperationPlan& plan, CallDim wanted) {
  for (const compiler::TensorPlan& tensor : plan.tensors)
    if (compiler::call_dim(tensor) == wanted) return true;
  return false;
}

void describe_sizes(const OperationPlan& plan, const trial::OperationCall& call,
                    RunReport& report) {
  const bool has_columns =
      has_dim(plan, CallDim::kColumns) || has_dim(plan, CallDim::kColumnBlocks);
  if (has_dim(plan, CallDim::kTokens)) report.tokens = call.dims.tokens;
  if (call.rows.padded > 0 || call.inputs.contains("offs"))
    report.rows = call.rows.padded;
  else if (has_dim(plan, CallDim::kRows))
    report.rows = call.dims.rows;
  if (has_columns) report.columns = call.dims.columns;
}

Result<TensorMap> run_session(const OperationPlan& plan, const RunCommand& command,
                              trial::OperationCall& call, trial::OperationSession& session,
                              runtime::Device& device, StepProgress& progress, RunReport& report) {
  measure::KernelTimer timer(device);
  RunObserver observer(timer, progress, plan);
  MOEJIT_TRY(session.run(&observer));
  MOEJIT_TRY_ASSIGN(report.times, timer.take_samples());
  MOEJIT_TRY_ASSIGN(TensorMap results, session.results());
  if (const auto status = results.find("status"); status != results.end())
    report.status = elements<uint32_t>(status->second).front();
  describe_sizes(plan, call, report);
  progress.start(kCheckStep);
  trial::cut_rows(plan, call, call.inputs);
  trial::cut_rows(plan, call, results);
  report.is_checked = command.check;
  const compiler::Phase phases[] = {compiler::Phase::kForward};
  if (command.check) report.checks = check::check_plan(plan, phases, call.inputs, results);
  return results;
}

}  // namespace

Result<void> run_operation(const RunCommand& command,
                           const compiler::OperationDescription& operation, Terminal& terminal) {
  MOEJIT_TRY(check_options(command, operation_name(operation)));
  MOEJIT_TRY_ASSIGN(const trial::OpenedTarget target,
                    trial::open_target(command.target, command.inputs.seed,
                                       "run it in the simulator: --target sim"));
  terminal.note(trial::target_text(target));
  MOEJIT_TRY_ASSIGN(const auto tuning, read_tuning_records(command.tuning, target.device.get()));
  MOEJIT_TRY_ASSIGN(
      const OperationPlan plan,
      compiler::plan_operation(operation, target.device->target(), {.tuning = tuning.get()}));
  StepProgress progress(terminal, run_steps(plan, std::nullopt, command.check));
  progress.start(kDataStep);
  MOEJIT_TRY_ASSIGN(trial::OperationCall call, trial::load_operation_call(plan, command.inputs));
  trial::CacheOptions cache = command.cache;
  cache.build_arguments = shell_word(command.layer) + tuning_words(command.tuning);
  MOEJIT_TRY_ASSIGN(const std::unique_ptr<runtime::Engine> engine,
                    trial::open_engine(cache, terminal.warner()));
  progress.start(kPrepareStep);
  MOEJIT_TRY_ASSIGN(const std::unique_ptr<trial::OperationSession> session,
                    trial::OperationSession::create(plan, *engine, *target.device, call));
  RunReport report;
  report.target = target.description;
  report.output = command.output;
  report.routing = trial::routing_of(plan, command.inputs);
  report.tuning = tuning_use(plan, tuning.get());
  tell_tuning(report.tuning, terminal);
  MOEJIT_TRY_ASSIGN(TensorMap results,
                    run_session(plan, command, call, *session, *target.device, progress, report));
  results.erase("status");  // the report has it
  if (!command.output.empty()) MOEJIT_TRY(checkpoint::write_safetensors(command.output, results));
  report.counters = engine->counters();
  return finish_run(plan, report, command, terminal);
}

}  // namespace moejit::cli
