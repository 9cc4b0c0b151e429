// SPDX-License-Identifier: Apache-2.0
#include "cli/report/verify_report.h"

#include <algorithm>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace moejit::cli {
namespace {

using nlohmann::ordered_json;

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
