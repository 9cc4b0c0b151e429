// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/sweep.h"

#include "compiler/compiler.h"
#include "compiler/support/json_text.h"
#include "compiler/support/utc_time.h"
#include "runtime/tune/decision/replay.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fmt/core.h>
#include <optional>
#include <set>
#include <unistd.h>

namespace moejit::tune {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// Returns the error kInvalidValue if there is a journal at `path` and it has times of another GPU.
Result<void> check_journal_gpu(const std::string& path, const std::string& gpu) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  MOEJIT_TRY_ASSIGN(const Journal journal, read_journal(path));
  MOEJIT_TRY_ASSIGN(const compiler::GpuIdentity here,
                    compiler::parse_gpu_identity(gpu, "this GPU"));
  for (const Session& session : journal.sessions) {
    MOEJIT_TRY_ASSIGN(const compiler::GpuIdentity other,
                      compiler::parse_gpu_identity(session.gpu, path));
    if (!is_same_gpu(here, other))
      return fail(Stage::kFile, ErrorCode::kInvalidValue,
                  fmt::format("{} has times of the {}, and this is the {}", path, to_string(other),
                              to_string(here)),
                  "keep a journal and a record for each GPU");
  }
  return {};
}

// Returns "-9.5 % time: band_tiles=4 ..., 12 rounds", or what is known without a winner.
std::string outcome_text(const TuneProblem& problem, const Race& race) {
  const Outcome outcome = race.outcome();
  const Standing& winner = outcome.standings[static_cast<std::size_t>(outcome.winner)];
  if (!outcome.is_settled) return fmt::format("not settled after {} rounds", winner.rounds);
  if (outcome.winner == 0) return fmt::format("the usual choices, {} rounds", winner.rounds);
  return fmt::format(
      "{:+.1f} % time: {}, {} rounds", 100.0 * (winner.median_ratio - 1.0),
      compiler::to_string(problem.candidates[static_cast<std::size_t>(outcome.winner)]),
      winner.rounds);
}

// Guesses how long a sweep still takes, from the candidates that it has measured. Their kernels do
// not matter, since a block takes the same time for all of them.
class RemainingTime {
 public:
  // Takes the problems of a sweep, and those that its journal has settled.
  RemainingTime(const std::vector<TuneProblem>& problems, const std::set<std::string>& settled) {
    for (const TuneProblem& problem : problems)
      candidates_.push_back(settled.contains(problem.name) ? 0.0 : problem.candidates.size());
  }

  // Adds the seconds of a problem that was measured to its end.
  void add(std::size_t problem, double seconds) {
    if (candidates_[problem] == 0.0) return;
    seconds_ += seconds;
    measured_ += candidates_[problem];
  }

  // Returns "about 40 s left" with the problems from `first` on, or "done" if there are none.
  std::string text(std::size_t first) const {
    if (first == candidates_.size()) return "done";
    if (measured_ == 0.0) return "time left unknown";
    double left = 0.0;
    for (std::size_t i = first; i < candidates_.size(); ++i) left += candidates_[i];
    const double seconds = left * seconds_ / measured_;
    return seconds < 90.0 ? fmt::format("about {:.0f} s left", seconds)
                          : fmt::format("about {:.0f} min left", seconds / 60.0);
  }

 private:
  std::vector<double> candidates_;  // of each problem that is to be measured
  double seconds_ = 0.0, measured_ = 0.0;
};

// Returns the problems whose races the journal has settled for this GPU.
Result<std::set<std::string>> settled_problems(const std::string& journal_path,
                                               const std::string& gpu) {
  MOEJIT_TRY_ASSIGN(const Journal journal, read_journal(journal_path));
  MOEJIT_TRY_ASSIGN(const auto races, replay(journal));
  std::set<std::string> settled;
  for (const ReplayedRace& race : races)
    if (race.gpu == gpu && race.race.racing().empty()) settled.insert(race.problem);
  return settled;
}

// Compiles the candidates of all problems, several at once. A candidate that does not compile is
// found when its race begins.
Result<void> compile_candidates(DeviceMeasurer& measurer, const RaceSite& site,
                                TuneObserver& observer) {
  const std::size_t problems = measurer.problems().size();
  MOEJIT_TRY(measurer.prefetch());
  for (std::size_t i = 0; i < problems && !site.stops(); ++i) {
    observer.show_progress("compiled problems", static_cast<int64_t>(i),
                           static_cast<int64_t>(problems));
    MOEJIT_TRY(measurer.compile(i));
  }
  observer.end_progress();
  return {};
}

// Races the problems, one after the other, until the site stops it. Problems before the one of the
// last loss are done.
Result<void> race_all(const std::vector<TuneProblem>& problems, const MeasuredDevice& device,
                      const std::string& journal_path, const RaceSite& site,
                      TuneObserver& observer) {
  MOEJIT_TRY_ASSIGN(const auto settled, settled_problems(journal_path, device.gpu));
  RemainingTime remaining(problems, settled);
  std::size_t i = site.losses.empty() ? 0 : site.losses.back().problem;
  for (; i < problems.size() && !site.stops(); ++i) {
    const TuneProblem& problem = problems[i];
    const auto start = Clock::now();
    observer.show_progress("problems", static_cast<int64_t>(i),
                           static_cast<int64_t>(problems.size()));
    std::optional<Race> race;
    const Result<void> raced = race_problem(problem, i, device, journal_path, site, race);
    observer.end_progress();
    if (!raced) {
      if (!site.measurer.is_usable()) site.watch.lose(raced.error().message);
      if (!site.measurer.is_usable() || raced.error().stage == Stage::kFile) return raced;
      observer.warn(fmt::format("{}: {}; it is left out", problem.subject, raced.error().message));
      continue;
    }
    if (race->racing().empty()) remaining.add(i, Seconds(Clock::now() - start).count());
    observer.note(fmt::format("{}: {} ({} of {}, {} of the estimated time, {})", problem.subject,
                              outcome_text(problem, *race), i + 1, problems.size(),
                              share_text(problem.share), remaining.text(i + 1)));
  }
  return {};
}

bool is_spent(const Watch& watch, double budget_seconds) {
  const auto since = watch.measuring_since();
  return since && Seconds(Clock::now() - *since).count() >= budget_seconds;
}

// Measures in this process, which may end at any time.
Result<void> measure(const TuneSubjects& subjects, const SweepOptions& options,
                     const std::string& journal_path, Watch& watch, std::span<const Loss> losses,
                     TuneObserver& observer) {
  MOEJIT_TRY_ASSIGN(auto opened, open_measurer(options.measured, subjects, observer));
  DeviceMeasurer& measurer = *opened.release();  // freeing it could wait for a GPU that hangs
  const MeasuredDevice device = measurer.device();
  MOEJIT_TRY(check_journal_gpu(journal_path, device.gpu));
  if (losses.empty()) {
    observer.note(device.description);
    MOEJIT_TRY_ASSIGN(const auto unmeasured, unmeasured_kernels(subjects, device.target));
    if (!unmeasured.empty()) observer.note(unmeasured_text(unmeasured));
  }
  MOEJIT_TRY_ASSIGN(JournalWriter journal, JournalWriter::open(journal_path, new_session(device)));
  const RaceSite site{
      .measurer = measurer,
      .watch = watch,
      .journal = journal,
      .times = race_times(options.measured),
      .stops = [&] { return watch.stops() || is_spent(watch, options.budget_seconds); },
      .rules =
          options.exhaustive_rounds > 0 ? exhaustive_rules(options.exhaustive_rounds) : RaceRules{},
      .losses = losses};
  if (!watch.measuring_since()) MOEJIT_TRY(compile_candidates(measurer, site, observer));
  watch.begin_measuring();
  return race_all(measurer.problems(), device, journal_path, site, observer);
}

}  // namespace

Result<SweepEnd> sweep(const TuneSubjects& subjects, const SweepOptions& options,
                       const std::string& journal_path, TuneObserver& observer) {
  Watch watch;
  const auto work = [&](std::span<const Loss> losses) {
    return measure(subjects, options, journal_path, watch, losses, observer);
  };
  MOEJIT_TRY(run_watched(watch, work, observer));
  if (observer.stops()) return SweepEnd::kStopped;
  return is_spent(watch, options.budget_seconds) ? SweepEnd::kBudgetSpent : SweepEnd::kDone;
}

Session new_session(const MeasuredDevice& device) {
  const Json context = {{"date", utc_time("%Y-%m-%d")},
                        {"version", MOEJIT_VERSION},
                        {"cuda_version", device.cuda_version}};
  return {.id = fmt::format("{}-{}", utc_time("%Y%m%dT%H%M%SZ"), ::getpid()),
          .gpu = device.gpu,
          .context = context.dump()};
}

Result<void> race_problem(const TuneProblem& problem, std::size_t index,
                          const MeasuredDevice& device, const std::string& journal_path,
                          const RaceSite& site, std::optional<Race>& race) {
  CandidateList list{.candidates = problem.candidates, .estimated_share = problem.share};
  MOEJIT_TRY_ASSIGN(list.text_digests, text_digests_of(problem, device.target));
  MOEJIT_TRY(site.journal.append(problem.name, list));
  MOEJIT_TRY_ASSIGN(const Journal journal, read_journal(journal_path));
  MOEJIT_TRY_ASSIGN(auto races, replay(journal, site.rules));
  const auto of_problem = std::ranges::find_if(races, [&](const ReplayedRace& one) {
    return one.problem == problem.name && one.gpu == device.gpu;
  });
  race = std::move(of_problem->race);
  Result<void> raced = race_kernel(problem, index, site, *race);
  if (!raced && raced.error().stage != Stage::kFile && site.measurer.is_usable())
    MOEJIT_TRY(site.journal.append(problem.name, FoundFault{.choices = problem.candidates.front(),
                                                            .fault = Fault::kDoesNotLaunch,
                                                            .detail = raced.error().message}));
  return raced;
}

}  // namespace moejit::tune
