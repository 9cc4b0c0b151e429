// SPDX-License-Identifier: Apache-2.0
#include "cli/report/tune_report.h"

#include "runtime/tune/decision/replay.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace moejit::cli {
namespace {

using compiler::TuningEntry;
using compiler::TuningRecord;
using nlohmann::ordered_json;

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
  ordered_json shares = ordered_json::object();
  for (const auto& [problem, share] : summary.estimated_shares) shares[problem] = share;
  const ordered_json json{{"problems", summary.problems},
                          {"settled", summary.settled},
                          {"gains", summary.gains},
                          {"candidates", summary.candidates},
                          {"faults", summary.faults},
                          {"changed_bits", summary.changed_bits},
                          {"estimated_shares", std::move(shares)},
                          {"record", ordered_json::parse(to_json(record))}};
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
  auto listed = ordered_json::array();
  for (const tune::TuneProblem& problem : problems)
    listed.push_back({{"problem", problem.name},
                      {"subject", problem.subject},
                      {"candidates", problem.candidates.size()},
                      {"estimated_share", problem.share}});
  ordered_json json{
      {"problems", std::move(listed)},
      {"estimated_seconds", std::round(estimated_seconds(problems, block_milliseconds))}};
  if (!unmeasured.empty()) json["unmeasured"] = unmeasured;
  return json.dump(2) + "\n";
}

namespace {

// Returns "-9.5 % time (95 %: -10.5 to -9.0), 12 rounds".
std::string figure_text(double ratio, double low, double high, int64_t rounds) {
  const auto percent = [](double one) { return 100.0 * (one - 1.0); };
  return fmt::format("{:+.1f} % time (95 %: {:+.1f} to {:+.1f}), {} {}", percent(ratio),
                     percent(low), percent(high), rounds, rounds == 1 ? "round" : "rounds");
}

std::string recorded_text(const compiler::TuningEntry& entry) {
  return figure_text(entry.ratio, entry.ratio_low, entry.ratio_high, entry.rounds);
}

std::string measured_text(const std::optional<tune::Standing>& measured) {
  if (!measured) return "nothing";
  return figure_text(measured->median_ratio, measured->low, measured->high, measured->rounds);
}

std::string entry_text(const tune::VerifiedEntry& verified) {
  return fmt::format("\n{}: {}\n    {}\n    {}\n    recorded {}\n    measured {}\n",
                     verified.subject, tune::verdict_text(verified), verified.entry.problem,
                     compiler::to_string(verified.entry.choices), recorded_text(verified.entry),
                     measured_text(verified.measured));
}

ordered_json figure_json(double ratio, double low, double high, int64_t rounds) {
  return {{"ratio", ratio}, {"ratio_low", low}, {"ratio_high", high}, {"rounds", rounds}};
}

ordered_json entry_json(const tune::VerifiedEntry& verified) {
  const compiler::TuningEntry& entry = verified.entry;
  ordered_json json{
      {"subject", verified.subject},
      {"problem", entry.problem},
      {"choices", entry.choices},
      {"verdict", to_string(verified.verdict)},
      {"reason", verified.reason},
      {"recorded", figure_json(entry.ratio, entry.ratio_low, entry.ratio_high, entry.rounds)},
      {"measured", nullptr}};
  if (const auto& now = verified.measured)
    json["measured"] = figure_json(now->median_ratio, now->low, now->high, now->rounds);
  return json;
}

int64_t holding(const tune::Verification& verification) {
  return std::ranges::count(verification.entries, tune::Verdict::kHolds,
                            &tune::VerifiedEntry::verdict);
}

}  // namespace

std::string verification_text(const tune::Verification& verification) {
  std::string text = to_string(verification.gpu) + "\n";
  for (const tune::VerifiedEntry& entry : verification.entries) text += entry_text(entry);
  text +=
      fmt::format("\n{} of {} entries hold", holding(verification), verification.entries.size());
  const auto add = [&](int64_t count, std::string_view what) {
    if (count > 0) text += fmt::format("; {} {}", count, what);
  };
  add(verification.usual, "with the usual choices, where there is nothing to measure");
  add(verification.left_out, "not in the sample");
  add(verification.elsewhere, "of no layer or case that was named");
  return text + "\n";
}

std::string verification_json(const tune::Verification& verification) {
  ordered_json entries = ordered_json::array();
  for (const tune::VerifiedEntry& entry : verification.entries)
    entries.push_back(entry_json(entry));
  const ordered_json json{{"gpu", ordered_json::parse(compiler::gpu_to_json(verification.gpu))},
                          {"holding", holding(verification)},
                          {"sampled", verification.entries.size()},
                          {"usual", verification.usual},
                          {"left_out", verification.left_out},
                          {"elsewhere", verification.elsewhere},
                          {"entries", std::move(entries)}};
  return json.dump(2) + "\n";
}

}  // namespace moejit::cli
