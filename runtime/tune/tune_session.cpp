// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/tune_session.h"

#include "compiler/compiler.h"
#include "compiler/support/json_text.h"
#include "compiler/support/utc_time.h"
#include "runtime/tune/decision/replay.h"
#include "runtime/tune/remaining_time.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fmt/core.h>
#include <optional>
#include <span>
#include <unistd.h>

namespace moejit::tune {
namespace {

// Appends the list of the problem's candidates to the journal.
Result<void> list_candidates(const TuneProblem& problem, const compiler::Target& target,
                             const RaceSite& site) {
  CandidateList list{.candidates = problem.candidates, .estimated_share = problem.share};
  MOEJIT_TRY_ASSIGN(list.text_digests, text_digests_of(problem, target));
  return site.journal.append(problem.name, list);
}

// Returns the race of a problem with all its rounds that the journal has for this GPU.
Result<Race> race_so_far(const std::string& journal_path, const std::string& gpu,
                         const TuneProblem& problem, const RaceRules& rules) {
  MOEJIT_TRY_ASSIGN(const Journal journal, read_journal(journal_path));
  MOEJIT_TRY_ASSIGN(const auto races, replay(journal, rules));
  for (const ReplayedRace& race : races)
    if (race.problem == problem.name && race.gpu == gpu) return race.race;
  return Race(static_cast<int32_t>(problem.candidates.size()), rules);
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

// Returns what is known before a sweep to guess its remaining time. It tells which problems the
// journal has settled, and which problems open their layer or case.
Result<std::vector<ProblemTime>> times_to_come(const std::vector<TuneProblem>& problems,
                                               const std::string& journal_path,
                                               const std::string& gpu) {
  MOEJIT_TRY_ASSIGN(const Journal journal, read_journal(journal_path));
  MOEJIT_TRY_ASSIGN(const auto races, replay(journal));
  const auto is_settled = [&](const TuneProblem& problem) {
    return std::ranges::any_of(races, [&](const ReplayedRace& race) {
      return race.problem == problem.name && race.gpu == gpu && race.race.racing().empty();
    });
  };
  std::vector<ProblemTime> times;
  std::optional<std::size_t> opened;
  for (const TuneProblem& problem : problems) {
    times.push_back({.kind = kind_of_problem(problem.name)});
    if (is_settled(problem)) continue;
    times.back().candidates = problem.candidates.size();
    times.back().opens_subject = opened != problem.owner;
    opened = problem.owner;
  }
  return times;
}

// Returns "about 40 s left", or "done" if all problems are done.
std::string remaining_text(std::span<const ProblemTime> times, std::size_t done) {
  if (done == times.size()) return "done";
  const std::optional<double> seconds = remaining_seconds(times, done);
  if (!seconds) return "time left unknown";
  return *seconds < 90.0 ? fmt::format("about {:.0f} s left", *seconds)
                         : fmt::format("about {:.0f} min left", *seconds / 60.0);
}

}  // namespace

Session new_session(const MeasuredDevice& device) {
  const Json context = {{"date", utc_time("%Y-%m-%d")},
                        {"version", MOEJIT_VERSION},
                        {"cuda_version", device.cuda_version}};
  return {.id = fmt::format("{}-{}", utc_time("%Y%m%dT%H%M%SZ"), ::getpid()),
          .gpu = device.gpu,
          .context = context.dump()};
}

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

Result<void> compile_candidates(const std::vector<TuneProblem>& problems, const RaceSite& site,
                                TuneObserver& observer) {
  MOEJIT_TRY(site.measurer.prefetch());
  for (std::size_t i = 0; i < problems.size() && !site.stops(); ++i) {
    observer.show_progress("compiled problems", static_cast<int64_t>(i),
                           static_cast<int64_t>(problems.size()));
    MOEJIT_TRY(site.measurer.compile(i));
  }
  observer.end_progress();
  return {};
}

Result<void> race_all(const std::vector<TuneProblem>& problems, const MeasuredDevice& device,
                      const RaceSite& site, const std::string& journal_path,
                      TuneObserver& observer) {
  MOEJIT_TRY_ASSIGN(std::vector<ProblemTime> times,
                    times_to_come(problems, journal_path, device.gpu));
  for (std::size_t i = 0; i < problems.size() && !site.stops(); ++i) {
    const TuneProblem& problem = problems[i];
    const auto start = std::chrono::steady_clock::now();
    observer.show_progress("problems", static_cast<int64_t>(i),
                           static_cast<int64_t>(problems.size()));
    MOEJIT_TRY(list_candidates(problem, device.target, site));
    MOEJIT_TRY_ASSIGN(Race race, race_so_far(journal_path, device.gpu, problem, site.rules));
    const Result<void> raced = race_kernel(problem, i, site, race);
    observer.end_progress();
    if (!raced) {
      if (!site.measurer.is_usable() || raced.error().stage == Stage::kFile) return raced;
      observer.warn(fmt::format("{}: {}; it is left out", problem.subject, raced.error().message));
      continue;
    }
    if (race.racing().empty())
      times[i].seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    observer.note(fmt::format("{}: {} ({} of {}, {} of the estimated time, {})", problem.subject,
                              outcome_text(problem, race), i + 1, problems.size(),
                              share_text(problem.share), remaining_text(times, i + 1)));
  }
  return {};
}

}  // namespace moejit::tune
