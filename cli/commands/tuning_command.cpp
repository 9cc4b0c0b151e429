// SPDX-License-Identifier: Apache-2.0
// Runs the verbs of moejit tuning that look at records.
#include "cli/commands/tuning_commands.h"
#include "compiler/tuning.h"

#include <algorithm>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

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

}  // namespace moejit::cli
