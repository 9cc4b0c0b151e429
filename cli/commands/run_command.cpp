// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/kernel_commands.h"
#include "cli/commands/run.h"
#include "cli/terminal/output.h"
#include "runtime/checkpoint/safetensors_file.h"
#include "runtime/trial/group_inputs.h"
#include "runtime/trial/trial.h"

#include <fmt/core.h>
#include <utility>

namespace moejit::cli {
namespace {

using compiler::Plan;
using runtime::TensorMap;

Result<void> check_options(const RunCommand& command) {
  if (command.inputs.checkpoint.first_expert < 0)
    return fail(Stage::kCommand, ErrorCode::kUsage,
                fmt::format("--first-expert is {}, wanted 0 or more",
                            command.inputs.checkpoint.first_expert));
  if (command.dump_intermediates && command.output.empty())
    return fail(Stage::kCommand, ErrorCode::kUsage,
                "--dump-intermediates writes to the file of --output, which is missing");
  if (!command.output.empty()) MOEJIT_TRY(checkpoint::check_writable(command.output));
  return check_output(command.output);
}

Result<void> check_subject(const RunCommand& command, const Description& description) {
  MOEJIT_TRY(check_description(command, description));
  const auto* const operation = std::get_if<compiler::OperationDescription>(&description);
  if (operation == nullptr) return {};
  if (command.dump_intermediates) return option_of_layers("--dump-intermediates", *operation);
  if (command.inputs.checkpoint.shards.empty()) return {};
  return option_of_layers("--weights", *operation);
}

// Writes the results; in a group, the tensors of rank 1 are named "rank1.y", ...
Result<void> write_results(const Run& run, std::vector<TensorMap> results) {
  TensorMap all;
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    const Plan& plan = run.opened.plans[rank];
    if (plan.layer)
      results[rank] = tensors_for_file(plan, run.calls, std::move(results[rank]),
                                       run.command.dump_intermediates);
    results[rank].erase("status");  // the report has it
    for (auto& [name, tensor] : results[rank])
      all.emplace((plan.group ? trial::rank_prefix(rank) : "") + name, std::move(tensor));
  }
  return checkpoint::write_safetensors(run.command.output, all);
}

}  // namespace

Result<void> run_run(const RunCommand& command, Terminal& terminal) {
  MOEJIT_TRY(check_options(command));
  MOEJIT_TRY_ASSIGN(const Description description, read_layer_or_operation(command.layer));
  MOEJIT_TRY(check_subject(command, description));
  MOEJIT_TRY_ASSIGN(Run run, open_run(command, description));
  terminal.note(run.opened.devices->text());
  tell_calls(run.plan(), run.calls, terminal);
  tell_tuning(run.opened.tuning, terminal);
  MOEJIT_TRY_ASSIGN(std::vector<TensorMap> results, complete_run(run, description, terminal));
  if (!command.output.empty()) MOEJIT_TRY(write_results(run, std::move(results)));
  return finish_run(run.plan(), run.report, command, terminal);
}

}  // namespace moejit::cli
