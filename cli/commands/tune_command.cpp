// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/commands.h"
#include "cli/commands/gemm_cases.h"
#include "cli/commands/layer_file.h"
#include "cli/commands/tuning_records.h"
#include "cli/execution/open_engine.h"
#include "cli/execution/open_target.h"
#include "cli/terminal/interruption.h"
#include "cli/tune/race_kernel.h"
#include "cli/tune/tune_report.h"
#include "cli/tune/tune_session.h"
#include "compiler/support/file.h"
#include "runtime/tune/tuned_records.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fmt/core.h>

namespace moejit::cli {
namespace {

using compiler::TuningRecord;
using SteadyClock = std::chrono::steady_clock;

tl::unexpected<Error> wrong_use(std::string message, std::string hint = {}) {
  return fail(Stage::kCommand, ErrorCode::kUsage, std::move(message), std::move(hint));
}

Result<std::vector<TuneProblem>> collect_problems(const TuneCommand& command,
                                                  const compiler::Target& target) {
  std::vector<TuneProblem> problems;
  const auto opened = std::make_shared<OpenedLayer>();
  for (const std::string& path : command.layers) {
    MOEJIT_TRY_ASSIGN(const compiler::Layer layer, read_layer(path));
    const int64_t tokens = command.tokens.value_or(layer.max_tokens);
    if (tokens < 1 || tokens > layer.max_tokens)
      return wrong_use(fmt::format("--tokens is {}, wanted 1 to {} (max_tokens of {})", tokens,
                                   layer.max_tokens, path));
    MOEJIT_TRY_ASSIGN(std::vector<TuneProblem> found,
                      problems_of(layer, tokens, target, command.seed, opened));
    std::move(found.begin(), found.end(), std::back_inserter(problems));
  }
  if (!command.gemms.empty()) {
    MOEJIT_TRY_ASSIGN(const std::string text, read_text_file(command.gemms));
    MOEJIT_TRY_ASSIGN(const auto cases, parse_gemm_cases(text, command.gemms));
    for (const measure::GemmCase& gemm : cases) {
      MOEJIT_TRY_ASSIGN(TuneProblem problem, problem_of(gemm, target, command.seed));
      problems.push_back(std::move(problem));
    }
  }
  join_problems(problems);
  return problems;
}

Result<void> check_options(const TuneCommand& command) {
  const bool has_subject = !command.layers.empty() || !command.gemms.empty();
  if (command.replay.empty() == !has_subject)
    return wrong_use("wanted layer descriptions, --gemms FILE, or --replay JOURNAL",
                     "moejit tune LAYER.json --output RECORD.json");
  const bool measures = !command.is_dry_run && !command.compiles_only && command.replay.empty();
  if (command.output.empty() && measures)
    return wrong_use("wanted --output RECORD.json, the file that gets what was fastest");
  return {};
}

// Returns the record of this GPU that the journal's races give, with the entries of other problems
// that the output file has already.
Result<TuningRecord> record_of(const tune::Journal& journal, const std::string& path,
                               const std::string& output) {
  MOEJIT_TRY_ASSIGN(std::vector<TuningRecord> records, tune::tuned_records(journal));
  if (records.empty())
    return fail(Stage::kFile, ErrorCode::kInvalidFile,
                fmt::format("{} has nothing that a tuner measured", path));
  if (records.size() > 1)
    return fail(Stage::kFile, ErrorCode::kInvalidValue,
                fmt::format("{} is of {} GPUs, and a record is of one", path, records.size()),
                "keep a journal for each GPU");
  std::error_code ignored;
  if (output.empty() || !std::filesystem::exists(output, ignored)) return std::move(records[0]);
  MOEJIT_TRY_ASSIGN(TuningRecord before, compiler::read_tuning(output));
  // What was measured now holds, however often something was measured before.
  std::erase_if(before.entries, [&](const compiler::TuningEntry& entry) {
    return std::ranges::count(records.front().entries, entry.problem,
                              &compiler::TuningEntry::problem) > 0;
  });
  return merge(before, records.front());
}

// Writes the record, if there is an output file, and prints what was found.
Result<void> finish(const TuneCommand& command, const std::string& journal_path,
                    const std::string& note, Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const tune::Journal journal, tune::read_journal(journal_path));
  MOEJIT_TRY_ASSIGN(const TuningRecord record, record_of(journal, journal_path, command.output));
  if (!command.output.empty()) MOEJIT_TRY(write_file(command.output, to_json(record)));
  MOEJIT_TRY_ASSIGN(const TuneSummary summary, summarize(journal));
  terminal.print(command.is_json ? tune_json(summary, record)
                                 : tune_text(summary, record, command.output, note));
  if (summary.changed_bits == 0) return {};
  return fail(Stage::kLaunch, ErrorCode::kCheckFailed,
              fmt::format("{} candidates gave other bits than the usual choices, which is a bug in "
                          "moejit; they were left out",
                          summary.changed_bits),
              fmt::format("the journal {} names them", journal_path));
}

Result<void> sweep(const TuneCommand& command, const std::string& journal_path, std::string& note,
                   Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const double budget_seconds, parse_duration("--budget", command.budget));
  MOEJIT_TRY_ASSIGN(const OpenedTarget target,
                    open_target(command.target, command.seed,
                                "without a GPU, moejit tune --dry-run lists what it would measure, "
                                "and --replay decides by a journal"));
  runtime::Device& device = *target.device;
  MOEJIT_TRY_ASSIGN(std::vector<TuneProblem> problems, collect_problems(command, device.target()));
  MOEJIT_TRY_ASSIGN(const std::unique_ptr<runtime::Engine> engine,
                    open_engine(command.cache, terminal));
  terminal.note(target_text(target));
  MOEJIT_TRY_ASSIGN(tune::JournalWriter journal,
                    tune::JournalWriter::open(journal_path, new_session(device)));
  MOEJIT_TRY(compile_candidates(problems, *engine, device.target(), terminal));
  const auto monitor = measure::GpuMonitor::open(device.gpu_facts().pci_bus_id);
  const Interruption interruption;
  const auto deadline = SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(
                                                 std::chrono::duration<double>(budget_seconds));
  const auto is_over = [&] { return SteadyClock::now() >= deadline; };
  const RaceSite site{.engine = *engine,
                      .device = device,
                      .monitor = monitor.get(),
                      .journal = journal,
                      .times = {.block_seconds = 1e-3 * command.block_milliseconds,
                                .heat_seconds = command.heat_seconds,
                                .most_heat_seconds = 5.0 * command.heat_seconds},
                      .stops = [&] { return is_over() || interruption.is_requested(); }};
  MOEJIT_TRY(race_all(problems, site, journal_path, terminal));
  if (interruption.is_requested()) note = "interrupted";
  if (note.empty() && is_over()) note = fmt::format("the budget of {} is spent", command.budget);
  return {};
}

}  // namespace

Result<void> run_tune(const TuneCommand& command, Terminal& terminal) {
  MOEJIT_TRY(check_options(command));
  if (!command.replay.empty()) return finish(command, command.replay, {}, terminal);
  if (command.is_dry_run) {
    MOEJIT_TRY_ASSIGN(const compiler::Target target,
                      compiler::parse_target(command.target == "auto" ? "cuda" : command.target));
    MOEJIT_TRY_ASSIGN(const auto problems, collect_problems(command, target));
    terminal.print(dry_run_text(problems));
    return {};
  }
  if (command.compiles_only) {
    MOEJIT_TRY_ASSIGN(const auto problems, collect_problems(command, compiler::Target{}));
    MOEJIT_TRY_ASSIGN(const auto engine, open_engine(command.cache, terminal));
    MOEJIT_TRY_ASSIGN(const std::size_t kernels,
                      compile_candidates(problems, *engine, compiler::Target{}, terminal));
    terminal.print(fmt::format("{} kernels; {}\n", kernels, counters_text(engine->counters())));
    return {};
  }
  const std::string journal =
      command.journal.empty() ? command.output + ".journal" : command.journal;
  std::error_code ignored;
  if (!command.resumes && std::filesystem::exists(journal, ignored))
    return wrong_use(fmt::format("there is a journal {} already", journal),
                     "--resume goes on with it; a new sweep wants another --journal");
  std::string note;
  MOEJIT_TRY(sweep(command, journal, note, terminal));
  MOEJIT_TRY(finish(command, journal, note, terminal));
  if (note == "interrupted") Interruption::end_process(terminal);
  return {};
}

}  // namespace moejit::cli
