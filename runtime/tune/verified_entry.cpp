// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/verified_entry.h"

#include "compiler/support/digest.h"

#include <algorithm>
#include <fmt/core.h>
#include <limits>
#include <utility>

namespace moejit::tune {
namespace {

VerifiedEntry with_verdict(VerifiedEntry verified, Verdict verdict, std::string reason) {
  verified.verdict = verdict;
  verified.reason = std::move(reason);
  return verified;
}

}  // namespace

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kHolds: return "holds";
    case Verdict::kNoLongerHolds: return "no_longer_holds";
    case Verdict::kTextChanged: return "text_changed";
    case Verdict::kNotOffered: return "not_offered";
    case Verdict::kNotMeasured: return "not_measured";
  }
  return "unknown";
}

std::string verdict_text(const VerifiedEntry& verified) {
  switch (verified.verdict) {
    case Verdict::kHolds: return "holds";
    case Verdict::kNoLongerHolds: return "no longer holds: " + verified.reason;
    case Verdict::kTextChanged: return "text changed: " + verified.reason;
    case Verdict::kNotOffered: return "is not offered any more: " + verified.reason;
    case Verdict::kNotMeasured: break;
  }
  return "not measured: " + verified.reason;
}

RaceRules verify_rules() {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  return {.drop_errors = kNever};
}

VerifiedEntry judged(VerifiedEntry verified, const Outcome& outcome, bool is_text_changed) {
  const Standing& standing = outcome.standings.back();
  if (standing.fault)
    return with_verdict(std::move(verified), Verdict::kNoLongerHolds,
                        fmt::format("the kernel is ruled out: {}", to_string(*standing.fault)));
  if (standing.rounds < kFewestForInterval)
    return with_verdict(std::move(verified), Verdict::kNotMeasured,
                        fmt::format("interrupted after {} rounds", standing.rounds));
  verified.measured = standing;
  if (is_text_changed)
    return with_verdict(std::move(verified), Verdict::kTextChanged,
                        "the entry was measured with another text of the kernel");
  if (standing.low <= verified.entry.ratio_high || standing.high < 1.0)
    return with_verdict(std::move(verified), Verdict::kHolds, {});
  const double percent = 100.0 * (standing.median_ratio - 1.0);
  return with_verdict(std::move(verified), Verdict::kNoLongerHolds,
                      fmt::format("the choices take {:+.1f} % time", percent));
}

std::vector<std::string> sampling_order(const compiler::TuningRecord& record) {
  const std::string of_record = sha256(to_json(record)).hex();
  std::vector<std::pair<Digest, std::string>> order;
  for (const compiler::TuningEntry& entry : record.entries)
    order.emplace_back(sha256(of_record + entry.problem), entry.problem);
  std::ranges::sort(order);
  std::vector<std::string> problems;
  for (auto& [digest, problem] : order) problems.push_back(std::move(problem));
  return problems;
}

}  // namespace moejit::tune
