// SPDX-License-Identifier: Apache-2.0
// Runs the verbs of moejit tuning that write a record: merge and prune.
#include "cli/commands/layer_file.h"
#include "cli/commands/tuning_commands.h"
#include "compiler/compiler.h"
#include "compiler/support/file.h"
#include "compiler/tuning.h"

#include <algorithm>
#include <fmt/core.h>
#include <set>
#include <variant>

namespace moejit::cli {
namespace {

using compiler::TuningEntry;
using compiler::TuningRecord;
using compiler::TuningStep;

Result<void> write(const TuningRecord& record, const std::string& path, Terminal& terminal) {
  MOEJIT_TRY(write_file(path, to_json(record)));
  terminal.print(fmt::format("{}: {} {} of the {}\n", path, record.entries.size(),
                             record.entries.size() == 1 ? "entry" : "entries",
                             to_string(record.gpu)));
  return {};
}

// What the plans of some descriptions take from a record.
struct Wanted {
  std::set<std::string> problems;  // of all kernels
  std::set<std::string> digests;   // of the plans with the usual choices
};

Result<Wanted> wanted_of(const std::vector<std::string>& layers, std::string_view pass) {
  Wanted wanted;
  for (const std::string& path : layers) {
    MOEJIT_TRY_ASSIGN(const compiler::Plan plan, read_plan(path, "cuda", {}, pass));
    for (const compiler::KernelPlan& kernel : plan.kernels)
      if (!kernel.problem.empty()) wanted.problems.insert(kernel.problem);
    wanted.digests.insert(plan_digest(plan));
  }
  return wanted;
}

// Returns whether the step is of one of the plans, by the digest in its name.
bool is_of(const TuningStep& step, const Wanted& wanted) {
  return std::ranges::any_of(wanted.digests, [&](const std::string& digest) {
    return step.step.find("plan_digest=" + digest) != std::string::npos;
  });
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
  MOEJIT_TRY_ASSIGN(const Wanted wanted, wanted_of(command.layers, command.pass));
  std::erase_if(record.entries,
                [&](const TuningEntry& entry) { return !wanted.problems.contains(entry.problem); });
  std::erase_if(record.steps, [&](const TuningStep& step) { return !is_of(step, wanted); });
  return write(record, command.output, terminal);
}

}  // namespace moejit::cli
