// SPDX-License-Identifier: Apache-2.0
#include "cli/tune/sweep.h"

#include "cli/execution/open_engine.h"
#include "cli/execution/open_target.h"
#include "cli/terminal/interruption.h"
#include "cli/tune/confirm_step.h"
#include "cli/tune/device_measurer.h"
#include "cli/tune/measuring_process.h"
#include "cli/tune/tune_session.h"
#include "cli/tune/tune_subjects.h"

#include <chrono>
#include <fmt/core.h>

namespace moejit::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Opens in this process what measures. The terminal must live longer.
Result<std::unique_ptr<DeviceMeasurer>> open_measurer(const TuneCommand& command,
                                                      const TuneSubjects& subjects,
                                                      const Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(OpenedTarget target,
                    open_target(command.target, command.seed,
                                "without a GPU, moejit tune --dry-run lists what it would measure, "
                                "and --replay decides by a journal"));
  MOEJIT_TRY_ASSIGN(std::unique_ptr<runtime::Engine> engine, open_engine(command.cache, terminal));
  return DeviceMeasurer::create(std::move(target), std::move(engine), subjects);
}

}  // namespace

Result<SweepEnd> sweep(const TuneCommand& command, const std::string& journal_path,
                       Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const double budget_seconds, parse_duration("--budget", command.budget));
  MOEJIT_TRY_ASSIGN(const double limit_seconds,
                    parse_duration("--candidate-limit", command.candidate_limit));
  MOEJIT_TRY_ASSIGN(const TuneSubjects subjects, read_subjects(command));
  MeasuringProcess measurer([&] { return open_measurer(command, subjects, terminal); },
                            limit_seconds);
  MOEJIT_TRY_ASSIGN(const MeasuredDevice device, measurer.device());
  MOEJIT_TRY_ASSIGN(const std::vector<TuneProblem> problems,
                    collect_problems(subjects, device.target));
  MOEJIT_TRY(check_journal_gpu(journal_path, device.gpu));
  terminal.note(device.description);
  MOEJIT_TRY_ASSIGN(tune::JournalWriter journal,
                    tune::JournalWriter::open(journal_path, new_session(device)));
  const Interruption interruption;
  SteadyClock::time_point deadline = SteadyClock::time_point::max();
  const auto is_over = [&] { return SteadyClock::now() >= deadline; };
  const RaceSite site{.measurer = measurer,
                      .journal = journal,
                      .times = {.block_seconds = 1e-3 * command.block_milliseconds,
                                .heat_seconds = command.heat_seconds,
                                .most_heat_seconds = 5.0 * command.heat_seconds},
                      .stops = [&] { return is_over() || interruption.is_requested(); }};
  MOEJIT_TRY(compile_candidates(problems, site, terminal));
  deadline = SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(
                                      std::chrono::duration<double>(budget_seconds));
  MOEJIT_TRY(race_all(problems, device, site, journal_path, terminal));
  MOEJIT_TRY(confirm_steps(subjects, device, site, journal_path, terminal));
  SweepEnd end{.note = {}, .signal = interruption.signal()};
  if (end.signal)
    end.note = "interrupted";
  else if (is_over())
    end.note = fmt::format("the budget of {} is spent", command.budget);
  return end;
}

}  // namespace moejit::cli
