// SPDX-License-Identifier: Apache-2.0
// Runs the verbs of moejit tuning.
#include "cli/commands/layer_file.h"
#include "cli/commands/tuning_commands.h"
#include "cli/report/tune_report.h"
#include "compiler/support/file.h"
#include "compiler/tuning.h"

#include <algorithm>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace moejit::cli {
namespace {

using compiler::TuningEntry;
using compiler::TuningRecord;

std::string entries_text(std::size_t count) {
  return fmt::format("{} {}", count, count == 1 ? "entry" : "entries");
}

// Returns "12 rounds, 2026-12-02".
std::string sure_text(const TuningEntry& record) {
  return fmt::format("{} {}{}{}", record.rounds, record.rounds == 1 ? "round" : "rounds",
                     record.date.empty() ? "" : ", ", record.date);
}

// Returns "-9.9 % time (95 %: -10.5 to -9.0); 12 rounds, 2026-12-02".
std::string gain_text(const TuningEntry& record) {
  const auto percent = [](double ratio) { return 100.0 * (ratio - 1.0); };
  return fmt::format("{:+.1f} % time (95 %: {:+.1f} to {:+.1f}); {}", percent(record.ratio),
                     percent(record.ratio_low), percent(record.ratio_high), sure_text(record));
}

std::string entry_text(const TuningEntry& entry) {
  const std::string gain = entry.ratio == 1.0
                               ? "the usual choices are the fastest; " + sure_text(entry)
                               : gain_text(entry);
  return fmt::format("\n{}\n    {}\n    {}\n", entry.problem, compiler::to_string(entry.choices),
                     gain);
}

const TuningEntry* find(const TuningRecord& record, std::string_view problem) {
  const auto found = std::ranges::find(record.entries, problem, &TuningEntry::problem);
  return found == record.entries.end() ? nullptr : &*found;
}

// A problem for which two records choose differently; null where one has no entry.
struct Difference {
  std::string problem;
  const TuningEntry *a = nullptr, *b = nullptr;
};

std::vector<Difference> differences(const TuningRecord& a, const TuningRecord& b) {
  std::vector<Difference> found;
  for (const TuningEntry& entry : a.entries) {
    const TuningEntry* const other = find(b, entry.problem);
    if (other == nullptr || other->choices != entry.choices)
      found.push_back({entry.problem, &entry, other});
  }
  for (const TuningEntry& entry : b.entries)
    if (find(a, entry.problem) == nullptr) found.push_back({entry.problem, nullptr, &entry});
  std::ranges::sort(found, {}, &Difference::problem);
  return found;
}

std::string choices_text(const TuningEntry* entry) {
  return entry == nullptr ? "no entry" : compiler::to_string(entry->choices);
}

nlohmann::ordered_json choices_json(const TuningEntry* entry) {
  return entry == nullptr ? nlohmann::ordered_json() : nlohmann::ordered_json(entry->choices);
}

Result<void> write(const TuningRecord& record, const std::string& path, Terminal& terminal) {
  MOEJIT_TRY(write_file(path, to_json(record)));
  terminal.print(fmt::format("{}: {} of the {}\n", path, entries_text(record.entries.size()),
                             to_string(record.gpu)));
  return {};
}

// Returns the problems of all kernels of the descriptions' plans.
Result<std::set<std::string>> problems_of(const std::vector<std::string>& layers,
                                          const std::string& pass) {
  const PlanArguments arguments{.pass = pass, .tuning = {.is_used = false}};
  std::set<std::string> problems;
  for (const std::string& path : layers) {
    MOEJIT_TRY_ASSIGN(const compiler::Plan plan, read_plan(path, arguments));
    for (const compiler::KernelPlan& kernel : plan.kernels) problems.insert(kernel.problem);
  }
  return problems;
}

constexpr std::string_view kVerifyWithoutGpu =
    "without a GPU, moejit tuning show tells what is in a record, and --target sim tries the "
    "command";

Result<tune::Verification> verify(const TuningVerifyCommand& command,
                                  tune::TuneObserver& observer) {
  if (command.subjects.layers.empty() && command.subjects.gemms.empty())
    return fail(Stage::kCommand, ErrorCode::kUsage,
                "wanted layer descriptions or --gemms FILE beside the record",
                "an entry names its problem, and running it takes a layer or case that has it");
  MOEJIT_TRY_ASSIGN(const tune::MeasureOptions options,
                    measure_options(command.subjects, kVerifyWithoutGpu));
  MOEJIT_TRY_ASSIGN(const compiler::TuningRecord record, compiler::read_tuning(command.record));
  MOEJIT_TRY_ASSIGN(tune::TuneSubjects subjects, read_subjects(command.subjects));
  return tune::verify_record(record, command.record, std::move(subjects), options, command.sample,
                             observer);
}

}  // namespace

Result<void> run_tuning_show(const TuningShowCommand& command, Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const TuningRecord record, compiler::read_tuning(command.record));
  if (command.is_json) {
    terminal.print(to_json(record));
    return {};
  }
  std::string text =
      fmt::format("{}: {}\n", to_string(record.gpu), entries_text(record.entries.size()));
  for (const TuningEntry& entry : record.entries) text += entry_text(entry);
  terminal.print(text);
  return {};
}

Result<void> run_tuning_diff(const TuningDiffCommand& command, Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const TuningRecord a, compiler::read_tuning(command.a));
  MOEJIT_TRY_ASSIGN(const TuningRecord b, compiler::read_tuning(command.b));
  const std::vector<Difference> found = differences(a, b);
  nlohmann::ordered_json json{{"differing", nlohmann::ordered_json::array()}};
  std::string text = found.empty() ? "the same choices\n" : "";
  for (const Difference& one : found) {
    json["differing"].push_back(
        {{"problem", one.problem}, {"a", choices_json(one.a)}, {"b", choices_json(one.b)}});
    text += fmt::format("{}\n    a: {}\n    b: {}\n", one.problem, choices_text(one.a),
                        choices_text(one.b));
  }
  terminal.print(command.is_json ? json.dump(2) + "\n" : text);
  return {};
}

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

Result<void> run_tuning_verify(const TuningVerifyCommand& command, Terminal& terminal) {
  std::optional<int> signal;
  const auto verified = [&] {
    TerminalTuneObserver observer(terminal);
    auto result = verify(command, observer);
    signal = observer.signal();
    return result;
  };
  MOEJIT_TRY_ASSIGN(const tune::Verification found, verified());
  terminal.print(command.is_json ? verification_json(found) : verification_text(found));
  if (found.failure) return tl::make_unexpected(*found.failure);
  if (signal) Interruption::end_process(terminal, *signal);
  const auto failed =
      std::ssize(found.entries) -
      std::ranges::count(found.entries, tune::Verdict::kHolds, &tune::VerifiedEntry::verdict);
  if (failed == 0) return {};
  return fail(Stage::kLaunch, ErrorCode::kTuningOutdated,
              fmt::format("{} of {} entries of {} were not found to hold", failed,
                          found.entries.size(), command.record),
              "moejit tune measures them anew: --output with the same record replaces them");
}

}  // namespace moejit::cli
