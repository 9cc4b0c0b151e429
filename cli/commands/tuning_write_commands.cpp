// SPDX-License-Identifier: Apache-2.0
// Runs the verbs of moejit tuning that write a record: merge and prune.
#include "cli/commands/layer_file.h"
#include "cli/commands/tuning_commands.h"
#include "compiler/support/file.h"
#include "compiler/tuning.h"

#include <fmt/core.h>
#include <set>

namespace moejit::cli {
namespace {

using compiler::TuningEntry;
using compiler::TuningRecord;

Result<void> write(const TuningRecord& record, const std::string& path, Terminal& terminal) {
  MOEJIT_TRY(write_file(path, to_json(record)));
  terminal.print(fmt::format("{}: {} {} of the {}\n", path, record.entries.size(),
                             record.entries.size() == 1 ? "entry" : "entries",
                             to_string(record.gpu)));
  return {};
}

// Returns the problems of all kernels of the descriptions' plans.
Result<std::set<std::string>> problems_of(const std::vector<std::string>& layers,
                                          std::string_view pass) {
  std::set<std::string> problems;
  for (const std::string& path : layers) {
    MOEJIT_TRY_ASSIGN(const compiler::Plan plan, read_plan(path, "cuda", {}, pass));
    for (const compiler::KernelPlan& kernel : plan.kernels) problems.insert(kernel.problem);
  }
  return problems;
}

}  // namespace

Result<void> run_tuning_merge(const TuningMergeCommand& command, Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(TuningRecord merged, compiler::read_tuning(command.records.front()));
  for (std::size_t i = 1; i < command.records.size(); ++i) {
    MOEJIT_TRY_ASSIGN(const TuningRecord record, compiler::read_tuning(command.records[i]));
    auto joined = merge(merged, record);
    if (!joined) {
      joined.error().message = fmt::format("{}: {}", command.records[i], joined.error().message);
      return tl::make_unexpected(std::move(joined).error());
    }
    merged = std::move(*joined);
  }
  return write(merged, command.output, terminal);
}

Result<void> run_tuning_prune(const TuningPruneCommand& command, Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(TuningRecord record, compiler::read_tuning(command.record));
  MOEJIT_TRY_ASSIGN(const auto wanted, problems_of(command.layers, command.pass));
  std::erase_if(record.entries,
                [&](const TuningEntry& entry) { return !wanted.contains(entry.problem); });
  return write(record, command.output, terminal);
}

}  // namespace moejit::cli
