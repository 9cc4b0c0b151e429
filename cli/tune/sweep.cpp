// SPDX-License-Identifier: Apache-2.0
#include "cli/tune/sweep.h"

#include "cli/terminal/interruption.h"
#include "cli/tune/confirm_step.h"
#include "cli/tune/measuring_process.h"
#include "cli/tune/open_measurer.h"
#include "cli/tune/tune_report.h"
#include "cli/tune/tune_session.h"
#include "cli/tune/tune_subjects.h"

#include <chrono>
#include <fmt/core.h>
#include <string_view>

namespace moejit::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::string_view kSweepWithoutGpu =
    "without a GPU, moejit tune --dry-run lists what it would measure, and --replay decides by a "
    "journal";

}  // namespace

Result<SweepEnd> sweep(const TuneCommand& command, const std::string& journal_path,
                       Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const double budget_seconds, parse_duration("--budget", command.budget));
  MOEJIT_TRY_ASSIGN(const double limit_seconds,
                    parse_duration("--candidate-limit", command.measured.candidate_limit));
  MOEJIT_TRY_ASSIGN(const TuneSubjects subjects, read_subjects(command.measured));
  MeasuringProcess measurer(
      [&] { return open_measurer(command.measured, subjects, terminal, kSweepWithoutGpu); },
      limit_seconds);
  MOEJIT_TRY_ASSIGN(const MeasuredDevice device, measurer.device());
  MOEJIT_TRY_ASSIGN(const std::vector<TuneProblem> problems,
                    collect_problems(subjects, device.target));
  MOEJIT_TRY(check_journal_gpu(journal_path, device.gpu));
  terminal.note(device.description);
  MOEJIT_TRY_ASSIGN(const auto unmeasured, unmeasured_kernels(subjects, device.target));
  if (!unmeasured.empty()) terminal.note(unmeasured_text(unmeasured));
  MOEJIT_TRY_ASSIGN(tune::JournalWriter journal,
                    tune::JournalWriter::open(journal_path, new_session(device)));
  const Interruption interruption;
  SteadyClock::time_point deadline = SteadyClock::time_point::max();
  const auto is_over = [&] { return SteadyClock::now() >= deadline; };
  const RaceSite site{.measurer = measurer,
                      .journal = journal,
                      .times = race_times(command.measured),
                      .stops = [&] { return is_over() || interruption.is_requested(); },
                      .rules = command.exhaustive_rounds > 0
                                   ? tune::exhaustive_rules(command.exhaustive_rounds)
                                   : tune::RaceRules{}};
  MOEJIT_TRY(compile_candidates(problems, site, terminal));
  deadline = SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(
                                      std::chrono::duration<double>(budget_seconds));
  MOEJIT_TRY(race_all(problems, device, site, journal_path, terminal));
  if (command.exhaustive_rounds == 0)
    MOEJIT_TRY(confirm_steps(subjects, device, site, journal_path, terminal));
  SweepEnd end{.note = {}, .signal = interruption.signal()};
  if (end.signal)
    end.note = "interrupted";
  else if (is_over())
    end.note = fmt::format("the budget of {} is spent", command.budget);
  return end;
}

}  // namespace moejit::cli
