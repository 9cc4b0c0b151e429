// SPDX-License-Identifier: Apache-2.0
// At its power limit a GPU's clock wanders by several percent within seconds, so times of different
// rounds do not compare. Ratios to the default's times around them do: what slows a whole round
// cancels. How much the default's two times differ from each other is the noise that remains, and
// no gain is believed that is not beyond twice that noise, the zone.
//
// While rounds are few, the zone is wide. It therefore guards the default against being replaced,
// and nothing else: whether more rounds are worth their time is judged by the indifference, which
// is the narrowest that the zone can become.
#include "runtime/tune/race.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fmt/core.h>

namespace moejit::tune {
namespace {

tl::unexpected<Error> refuse(std::string message) {
  return fail(Stage::kCommand, ErrorCode::kInvalidValue, std::move(message));
}

tl::unexpected<Error> refuse_time(std::string_view whose, double us) {
  return refuse(fmt::format("round of a race: {}: got {} microseconds, wanted {} to {}", whose, us,
                            kShortestUs, kLongestUs));
}

}  // namespace

Race::Race(int32_t candidates, const RaceRules& rules) : rules_(rules) {
  rules_.least_rounds = std::max(rules_.least_rounds, 1);
  rules_.most_rounds = std::max(rules_.most_rounds, 1);
  runners_.resize(static_cast<std::size_t>(std::max(candidates, 1)));
}

std::vector<int32_t> Race::racing() const {
  std::vector<int32_t> racing;
  if (is_clear()) return racing;
  for (std::size_t i = 1; i < runners_.size(); ++i)
    if (runners_[i].is_contender() && runners_[i].rounds() < rules_.most_rounds)
      racing.push_back(static_cast<int32_t>(i));
  return racing;
}

Result<void> Race::check(const Round& round) const {
  if (!is_time_us(round.default_first_us)) return refuse_time("default", round.default_first_us);
  if (!is_time_us(round.default_last_us)) return refuse_time("default", round.default_last_us);
  if (round.candidates_us.empty())
    return refuse("round of a race: got no candidate, wanted one or more that race");
  const std::vector<int32_t> racing = this->racing();
  for (const auto& [candidate, us] : round.candidates_us) {
    if (!std::ranges::binary_search(racing, candidate))
      return refuse(
          fmt::format("round of a race: got candidate {}, which does not race", candidate));
    if (!is_time_us(us)) return refuse_time(fmt::format("candidate {}", candidate), us);
  }
  return {};
}

Result<void> Race::add(const Round& round) {
  MOEJIT_TRY(check(round));
  const double default_us = std::sqrt(round.default_first_us * round.default_last_us);
  default_ratios_.push_back(round.default_last_us / round.default_first_us);
  for (const auto& [candidate, us] : round.candidates_us) {
    Runner& runner = runners_[static_cast<std::size_t>(candidate)];
    runner.ratios.push_back(us / default_us);
    runner.figure = median_interval(runner.ratios);
  }
  drop_runners();
  return {};
}

Result<void> Race::disqualify(int32_t candidate, Fault fault) {
  if (candidate < 1 || static_cast<std::size_t>(candidate) >= runners_.size())
    return refuse(fmt::format("cannot disqualify candidate {} ({}): wanted 1 to {}", candidate,
                              to_string(fault), runners_.size() - 1));
  Runner& runner = runners_[static_cast<std::size_t>(candidate)];
  if (runner.fault) return {};
  runner.fault = fault;
  if (runner.dropped_after > 0) return {};
  for (Runner& other : runners_) other.dropped_after = 0;
  drop_runners();
  return {};
}

void Race::drop_runners() {
  drop_slower(2, rules_.drop_factor_after_2);
  drop_slower(4, rules_.drop_factor_after_4);
  drop_hopeless();
}

// Compares with the default too: a candidate that is far behind it will not win either.
void Race::drop_slower(int32_t after, double factor) {
  const Runner* best = best_contender(after);
  if (best == nullptr) return;
  const double limit = factor * std::min(best->figure.median, 1.0);
  for (Runner& runner : runners_)
    if (runner.is_contender() && runner.rounds() >= after && runner.figure.median > limit)
      runner.dropped_after = runner.rounds();
}

void Race::drop_hopeless() {
  const Runner* best = best_contender(rules_.least_rounds);
  if (best == nullptr) return;
  const double limit = std::min(best->figure.high, 1.0 - rules_.indifference);
  for (Runner& runner : runners_)
    if (runner.is_contender() && runner.rounds() >= rules_.least_rounds &&
        runner.figure.low > limit)
      runner.dropped_after = runner.rounds();
}

double Race::noise() const {
  const MedianInterval figure = median_interval(default_ratios_);
  return 0.5 * (figure.high - figure.low);
}

double Race::zone() const { return std::max(rules_.indifference, 2.0 * noise()); }

// Returns the contender of lowest median among those with so many rounds, or null.
const Race::Runner* Race::best_contender(int32_t least_rounds) const {
  const Runner* best = nullptr;
  for (std::size_t i = 1; i < runners_.size(); ++i) {
    const Runner& runner = runners_[i];
    if (!runner.is_contender() || runner.rounds() < least_rounds) continue;
    if (best == nullptr || runner.figure.median < best->figure.median) best = &runner;
  }
  return best;
}

// Returns whether the best certainly gains, and nobody left differs enough from it to race on.
bool Race::is_clear() const {
  const Runner* best = best_contender(rules_.least_rounds);
  if (best == nullptr || best->figure.high >= 1.0 - zone()) return false;
  return std::all_of(runners_.begin() + 1, runners_.end(), [&](const Runner& runner) {
    return !runner.is_contender() ||
           (runner.rounds() >= rules_.least_rounds &&
            runner.figure.median <= best->figure.median + rules_.indifference);
  });
}

int32_t Race::winner() const {
  const double limit = 1.0 - zone();
  const auto gains = [&](const Runner& runner) {
    return runner.is_contender() && runner.figure.high < limit;
  };
  const MedianInterval* best = nullptr;
  for (const Runner& runner : runners_)
    if (gains(runner) && (best == nullptr || runner.figure.median < best->median))
      best = &runner.figure;
  for (std::size_t i = 1; i < runners_.size(); ++i) {
    const MedianInterval& figure = runners_[i].figure;
    if (gains(runners_[i]) && figure.low <= best->high &&
        figure.median <= best->median + rules_.indifference)
      return static_cast<int32_t>(i);
  }
  return 0;
}

Outcome Race::outcome() const {
  Outcome outcome;
  outcome.winner = winner();
  outcome.is_settled = racing().empty();
  outcome.noise = noise();
  outcome.zone = zone();
  for (const Runner& runner : runners_)
    outcome.standings.push_back({.rounds = runner.rounds(),
                                 .median_ratio = runner.figure.median,
                                 .low = runner.figure.low,
                                 .high = runner.figure.high,
                                 .dropped_after = runner.dropped_after,
                                 .fault = runner.fault});
  Standing& standing = outcome.standings.front();  // of the default
  standing.rounds = static_cast<int32_t>(default_ratios_.size());
  standing.median_ratio = standing.low = standing.high = 1.0;
  return outcome;
}

}  // namespace moejit::tune
