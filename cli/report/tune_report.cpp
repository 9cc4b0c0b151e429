// SPDX-License-Identifier: Apache-2.0
#include "cli/report/tune_report.h"

#include "runtime/tune/decision/replay.h"

#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace moejit::cli {
namespace {

using compiler::TuningEntry;
using compiler::TuningRecord;

std::string entry_lines(const TuningEntry& entry) {
  const std::string gain = entry.ratio == 1.0
                               ? "the usual choices"
                               : fmt::format("{:+.1f} % time: {}", 100.0 * (entry.ratio - 1.0),
                                             compiler::to_string(entry.choices));
  return fmt::format("{}\n    {}; {} rounds\n", entry.problem, gain, entry.rounds);
}

}  // namespace

Result<TuneSummary> summarize(const tune::Journal& journal) {
  MOEJIT_TRY_ASSIGN(const std::vector<tune::ReplayedRace> races, tune::replay(journal));
  TuneSummary summary{.problems = static_cast<int64_t>(races.size())};
  for (const tune::ReplayedRace& race : races) {
    const tune::Outcome outcome = race.race.outcome();
    summary.settled += outcome.is_settled ? 1 : 0;
    summary.gains += outcome.is_settled && outcome.winner != 0 ? 1 : 0;
    summary.candidates += static_cast<int64_t>(race.candidates.size());
    if (race.estimated_share) summary.estimated_shares[race.problem] = *race.estimated_share;
    for (const tune::Standing& standing : outcome.standings) {
      summary.faults += standing.fault ? 1 : 0;
      summary.changed_bits += standing.fault == tune::Fault::kChangesBits ? 1 : 0;
    }
  }
  return summary;
}

std::string tune_text(const TuneSummary& summary, const TuningRecord& record,
                      const std::string& output, const std::string& note) {
  std::string text = fmt::format("{}\n", to_string(record.gpu));
  for (const TuningEntry& entry : record.entries) text += entry_lines(entry);
  text += fmt::format(
      "{} of {} problems are settled, {} with a gain; {} of {} candidates were "
      "ruled out\n",
      summary.settled, summary.problems, summary.gains, summary.faults, summary.candidates);
  if (!output.empty()) text += fmt::format("{} has {} entries\n", output, record.entries.size());
  if (!note.empty()) text += fmt::format("{}; --resume goes on with what is left\n", note);
  return text;
}

std::string tune_json(const TuneSummary& summary, const TuningRecord& record) {
  nlohmann::ordered_json shares = nlohmann::ordered_json::object();
  for (const auto& [problem, share] : summary.estimated_shares) shares[problem] = share;
  const nlohmann::ordered_json json{{"problems", summary.problems},
                                    {"settled", summary.settled},
                                    {"gains", summary.gains},
                                    {"candidates", summary.candidates},
                                    {"faults", summary.faults},
                                    {"changed_bits", summary.changed_bits},
                                    {"estimated_shares", std::move(shares)},
                                    {"record", nlohmann::ordered_json::parse(to_json(record))}};
  return json.dump(2) + "\n";
}

namespace {

// The figure is from two sweeps with blocks of 20 ms that took 193 s each (docs/tuning.md). On an
// H200, 32 problems with 495 candidates took 20 blocks for each candidate. On an H100, 31 problems
// with 539 candidates took 18 blocks.
constexpr double kBlocksPerCandidate = 20.0;

std::size_t count_candidates(const std::vector<tune::TuneProblem>& problems) {
  std::size_t candidates = 0;
  for (const tune::TuneProblem& problem : problems) candidates += problem.candidates.size();
  return candidates;
}

double estimated_seconds(const std::vector<tune::TuneProblem>& problems,
                         double block_milliseconds) {
  return static_cast<double>(count_candidates(problems)) * kBlocksPerCandidate *
         block_milliseconds * 1e-3;
}

}  // namespace

std::string dry_run_text(const std::vector<tune::TuneProblem>& problems, double block_milliseconds,
                         const std::vector<std::string>& unmeasured) {
  std::string text;
  for (const tune::TuneProblem& problem : problems) {
    text += fmt::format("{}: {} candidates, {} of the estimated time\n    {}\n", problem.subject,
                        problem.candidates.size(), tune::share_text(problem.share), problem.name);
  }
  return text +
         fmt::format(
             "{} {}, {} candidates: about {:.0f} min on a GPU, and never more than --budget\n",
             problems.size(), problems.size() == 1 ? "problem" : "problems",
             count_candidates(problems),
             std::ceil(estimated_seconds(problems, block_milliseconds) / 60.0)) +
         (unmeasured.empty() ? "" : tune::unmeasured_text(unmeasured) + "\n");
}

std::string dry_run_json(const std::vector<tune::TuneProblem>& problems, double block_milliseconds,
                         const std::vector<std::string>& unmeasured) {
  auto listed = nlohmann::ordered_json::array();
  for (const tune::TuneProblem& problem : problems)
    listed.push_back({{"problem", problem.name},
                      {"subject", problem.subject},
                      {"candidates", problem.candidates.size()},
                      {"estimated_share", problem.share}});
  nlohmann::ordered_json json{
      {"problems", std::move(listed)},
      {"estimated_seconds", std::round(estimated_seconds(problems, block_milliseconds))}};
  if (!unmeasured.empty()) json["unmeasured"] = unmeasured;
  return json.dump(2) + "\n";
}

}  // namespace moejit::cli
