// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/sweep.h"

#include "runtime/tune/measuring_process.h"
#include "runtime/tune/tune_session.h"

#include <chrono>

namespace moejit::tune {

Result<SweepEnd> sweep(const TuneSubjects& subjects, const SweepOptions& options,
                       const std::string& journal_path, TuneObserver& observer) {
  using Clock = std::chrono::steady_clock;
  MeasuringProcess measurer([&] { return open_measurer(options.measured, subjects, observer); },
                            options.measured.candidate_seconds);
  MOEJIT_TRY_ASSIGN(const MeasuredDevice device, measurer.device());
  MOEJIT_TRY_ASSIGN(const std::vector<TuneProblem> problems,
                    collect_problems(subjects, device.target));
  MOEJIT_TRY(check_journal_gpu(journal_path, device.gpu));
  observer.note(device.description);
  MOEJIT_TRY_ASSIGN(const auto unmeasured, unmeasured_kernels(subjects, device.target));
  if (!unmeasured.empty()) observer.note(unmeasured_text(unmeasured));
  MOEJIT_TRY_ASSIGN(JournalWriter journal, JournalWriter::open(journal_path, new_session(device)));
  observer.begin();
  Clock::time_point deadline = Clock::time_point::max();
  const auto is_over = [&] { return Clock::now() >= deadline; };
  const RaceSite site{.measurer = measurer,
                      .journal = journal,
                      .times = race_times(options.measured),
                      .stops = [&] { return is_over() || observer.stops(); },
                      .rules = options.exhaustive_rounds > 0
                                   ? exhaustive_rules(options.exhaustive_rounds)
                                   : RaceRules{}};
  MOEJIT_TRY(compile_candidates(problems, site, observer));
  deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                std::chrono::duration<double>(options.budget_seconds));
  MOEJIT_TRY(race_all(problems, device, site, journal_path, observer));
  if (observer.stops()) return SweepEnd::kStopped;
  return is_over() ? SweepEnd::kBudgetSpent : SweepEnd::kDone;
}

}  // namespace moejit::tune
