// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/remaining_time.h"

#include <algorithm>

namespace moejit::tune {
namespace {

// Returns the mean seconds of a candidate over the measured problems for which `counts` is true.
template <typename Predicate>
std::optional<double> mean_seconds(std::span<const ProblemTime> measured, const Predicate& counts) {
  double seconds = 0.0, candidates = 0.0;
  for (const ProblemTime& problem : measured) {
    if (!problem.seconds || problem.candidates == 0 || !counts(problem)) continue;
    seconds += *problem.seconds;
    candidates += static_cast<double>(problem.candidates);
  }
  if (candidates == 0.0) return std::nullopt;
  return seconds / candidates;
}

// Returns the seconds that the candidates of a problem take. Problems that opened nothing are the
// best measure, even if they are of other kinds.
std::optional<double> racing_seconds(std::span<const ProblemTime> measured,
                                     const ProblemTime& problem) {
  const auto is_alike = [&](const ProblemTime& other) { return other.kind == problem.kind; };
  std::optional<double> mean = mean_seconds(
      measured, [&](const ProblemTime& other) { return is_alike(other) && !other.opens_subject; });
  if (!mean)
    mean = mean_seconds(measured, [](const ProblemTime& other) { return !other.opens_subject; });
  if (!mean) mean = mean_seconds(measured, is_alike);
  if (!mean) mean = mean_seconds(measured, [](const ProblemTime&) { return true; });
  if (!mean) return std::nullopt;
  return *mean * static_cast<double>(problem.candidates);
}

// Returns the mean seconds that opening a subject took.
double opening_seconds(std::span<const ProblemTime> measured) {
  double seconds = 0.0, openings = 0.0;
  for (const ProblemTime& problem : measured) {
    if (!problem.seconds || !problem.opens_subject) continue;
    seconds += *problem.seconds - *racing_seconds(measured, problem);
    openings += 1.0;
  }
  return openings == 0.0 ? 0.0 : std::max(0.0, seconds / openings);
}

}  // namespace

std::string kind_of_problem(std::string_view name) {
  return std::string(name.substr(0, name.find(' ')));
}

std::optional<double> remaining_seconds(std::span<const ProblemTime> problems, std::size_t done) {
  const std::span<const ProblemTime> measured = problems.first(done);
  const double opening = opening_seconds(measured);
  double seconds = 0.0;
  for (const ProblemTime& problem : problems.subspan(done)) {
    const std::optional<double> racing = racing_seconds(measured, problem);
    if (!racing) return std::nullopt;
    seconds += *racing + (problem.opens_subject ? opening : 0.0);
  }
  return seconds;
}

}  // namespace moejit::tune
