// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/tuning_commands.h"
#include "cli/report/tune_page.h"
#include "cli/report/tune_report.h"
#include "cli/terminal/output.h"
#include "compiler/support/file.h"
#include "runtime/trial/open_engine.h"
#include "runtime/tune/decision/tuned_records.h"
#include "runtime/tune/sweep.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fmt/core.h>
#include <sys/file.h>

namespace moejit::cli {
namespace {

using compiler::TuningRecord;

constexpr std::string_view kTuneWithoutGpu =
    "without a GPU, moejit tune --dry-run lists what it would measure, and --replay decides by a "
    "journal";

tl::unexpected<Error> wrong_use(std::string message, std::string hint = {}) {
  return fail(Stage::kCommand, ErrorCode::kUsage, std::move(message), std::move(hint));
}

Result<void> check_options(const TuneCommand& command) {
  const bool has_subject = !command.subjects.layers.empty() || !command.subjects.gemms.empty();
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
  // What was measured now replaces older entries, even if they were measured in more rounds.
  MOEJIT_TRY_ASSIGN(before, without_decided(std::move(before), journal));
  return merge(before, records.front());
}

// Returns the error of an output file that could not be written, with a hint how to write it later
// from the journal.
tl::unexpected<Error> not_written(Error error, const std::string& journal_path,
                                  std::string_view option) {
  if (error.hint.empty())
    error.hint = fmt::format(
        "the journal has all that was measured: moejit tune --replay {} {} "
        "FILE writes it elsewhere",
        shell_word(journal_path), option);
  return tl::make_unexpected(std::move(error));
}

// Returns a lock on the folder of a file, which lasts until the descriptor is closed. As commands
// take it to read, change and write the file, none loses what another one wrote. Waits until other
// commands release the lock. Returns an empty descriptor if the folder cannot be opened or its file
// system has no locks.
FileDescriptor lock_folder_of(const std::string& path) {
  std::string folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  FileDescriptor lock(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock) return lock;
  int result = 0;
  do result = ::flock(lock.get(), LOCK_EX);
  while (result != 0 && errno == EINTR);
  if (result != 0) return {};
  return lock;
}

// Writes what the journal gives into the record, beside the entries of other problems.
Result<TuningRecord> update_record(const tune::Journal& journal, const std::string& journal_path,
                                   const std::string& output) {
  FileDescriptor lock;
  if (!output.empty()) lock = lock_folder_of(output);
  MOEJIT_TRY_ASSIGN(TuningRecord record, record_of(journal, journal_path, output));
  if (output.empty()) return record;
  if (auto written = write_file(output, to_json(record)); !written)
    return not_written(std::move(written.error()), journal_path, "--output");
  return record;
}

// Writes the record, if there is an output file, and prints what was found.
Result<void> finish(const TuneCommand& command, const std::string& journal_path,
                    const std::string& note, Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const tune::Journal journal, tune::read_journal(journal_path));
  MOEJIT_TRY_ASSIGN(const TuningRecord record,
                    update_record(journal, journal_path, command.output));
  MOEJIT_TRY_ASSIGN(const TuneSummary summary, summarize(journal));
  terminal.print(command.is_json ? tune_json(summary, record)
                                 : tune_text(summary, record, command.output, note));
  if (!command.report.empty()) {
    MOEJIT_TRY_ASSIGN(const std::string page, tune_report_html(journal, record));
    if (auto written = write_file(command.report, page); !written)
      return not_written(std::move(written.error()), journal_path, "--report");
  }
  if (summary.changed_bits == 0) return {};
  return fail(Stage::kLaunch, ErrorCode::kCheckFailed,
              fmt::format("{} candidates gave other bits than the usual choices, which is a bug in "
                          "moejit; they were left out",
                          summary.changed_bits),
              fmt::format("the journal {} names them", journal_path));
}

// Lists what a sweep would measure.
Result<void> list_problems(const TuneCommand& command, Terminal& terminal) {
  const tune::MeasureOptions& options = command.subjects.measured;
  MOEJIT_TRY_ASSIGN(const compiler::Target target,
                    compiler::parse_target(options.target == "auto" ? "cuda" : options.target));
  MOEJIT_TRY_ASSIGN(const tune::TuneSubjects subjects, read_subjects(command.subjects));
  MOEJIT_TRY_ASSIGN(const auto problems, tune::collect_problems(subjects, target));
  MOEJIT_TRY_ASSIGN(const auto unmeasured, tune::unmeasured_kernels(subjects, target));
  const double block = options.block_milliseconds;
  terminal.print(command.is_json ? dry_run_json(problems, block, unmeasured)
                                 : dry_run_text(problems, block, unmeasured));
  return {};
}

// Compiles what a sweep on a GPU would measure.
Result<void> fill_cache(const TuneCommand& command, Terminal& terminal) {
  const compiler::Target target;
  MOEJIT_TRY_ASSIGN(const tune::TuneSubjects subjects, read_subjects(command.subjects));
  MOEJIT_TRY_ASSIGN(const auto problems, tune::collect_problems(subjects, target));
  MOEJIT_TRY_ASSIGN(const auto sources, tune::sources_of(problems, target));
  MOEJIT_TRY_ASSIGN(const auto engine,
                    trial::open_engine(command.subjects.measured.cache, terminal.warner()));
  engine->prefetch(sources);
  int64_t failed = 0;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    terminal.show_progress("kernels", static_cast<int64_t>(i),
                           static_cast<int64_t>(sources.size()));
    failed += engine->binary(sources[i]) ? 0 : 1;
  }
  terminal.clear_progress();
  terminal.print(fmt::format("{} kernels{}; {}\n", sources.size(),
                             failed == 0 ? "" : fmt::format(", {} do not compile", failed),
                             trial::counters_text(engine->counters())));
  return {};
}

// How a sweep that had no error came to its end.
struct TuneEnd {
  std::string note;           // why it ended early; empty if it did not
  std::optional<int> signal;  // that stopped it
};

Result<TuneEnd> sweep_on(const TuneCommand& command, const std::string& journal,
                         const Terminal& terminal) {
  tune::SweepOptions options{.exhaustive_rounds = command.exhaustive_rounds};
  MOEJIT_TRY_ASSIGN(options.budget_seconds, parse_duration("--budget", command.budget));
  MOEJIT_TRY_ASSIGN(options.measured, measure_options(command.subjects, kTuneWithoutGpu));
  MOEJIT_TRY_ASSIGN(const tune::TuneSubjects subjects, read_subjects(command.subjects));
  TerminalTuneObserver observer(terminal);
  MOEJIT_TRY_ASSIGN(const tune::SweepEnd end, tune::sweep(subjects, options, journal, observer));
  switch (end) {
    case tune::SweepEnd::kDone: break;
    case tune::SweepEnd::kStopped: return TuneEnd{"interrupted", observer.signal()};
    case tune::SweepEnd::kBudgetSpent:
      return TuneEnd{fmt::format("the budget of {} is spent", command.budget), {}};
  }
  return TuneEnd{};
}

// Measures and writes the record. A sweep that ends with an error still leaves a record of what was
// measured.
Result<void> measure(const TuneCommand& command, Terminal& terminal) {
  const std::string journal =
      command.journal.empty() ? command.output + ".journal" : command.journal;
  std::error_code ignored;
  const bool had_journal = std::filesystem::exists(journal, ignored);
  if (had_journal && !command.resumes)
    return wrong_use(fmt::format("there is a journal {} already", journal),
                     "--resume goes on with it; a new sweep wants another --journal");
  if (command.subjects.measured.target == "sim")
    terminal.warn("times of the simulator say nothing about a GPU, and no plan for one takes them");
  Result<TuneEnd> end = sweep_on(command, journal, terminal);
  if (!end) {
    if (end.error().stage != Stage::kFile && std::filesystem::exists(journal, ignored))
      static_cast<void>(finish(command, journal, "ended by an error", terminal));
    return tl::make_unexpected(std::move(end.error()));
  }
  MOEJIT_TRY(finish(command, journal, end->note, terminal));
  if (end->signal) Interruption::end_process(terminal, *end->signal);
  return {};
}

}  // namespace

Result<void> run_tune(const TuneCommand& command, Terminal& terminal) {
  MOEJIT_TRY(check_options(command));
  if (!command.replay.empty()) return finish(command, command.replay, {}, terminal);
  if (command.is_dry_run) return list_problems(command, terminal);
  if (command.compiles_only) return fill_cache(command, terminal);
  for (const std::string* const output : {&command.output, &command.journal, &command.report})
    MOEJIT_TRY(check_output(*output));
  return measure(command, terminal);
}

}  // namespace moejit::cli
