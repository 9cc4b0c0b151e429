// SPDX-License-Identifier: Apache-2.0
// At its power limit a GPU's clock wanders by several percent within seconds, so times of different
// rounds do not compare. Ratios to the default's times in the same round do: what slows a whole
// round cancels. What does not cancel is of two kinds. Scatter is different in each round, and more
// rounds make it as small as one likes; bias is alike in all rounds and stays. The intervals and
// standard errors are for scatter and know nothing of bias; the zone is for bias alone. If the zone
// grew with scatter, too, that would count twice, and no gain of a few percent would be found.
//
// Bias is no small matter. The first blocks after a pause, in which the GPU has cooled, were 2 to 4
// % faster than blocks a tenth of a second later. Therefore the default is timed at random places
// as well.
//
// Rounds are cheap once few candidates race. What is far behind leaves early, by a margin that goes
// by the scatter, and the time goes into those that are close together.
#include "runtime/tune/decision/race.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <fmt/core.h>
#include <numbers>

namespace moejit::tune {
namespace {

tl::unexpected<Error> refuse_race(std::string message) {
  return fail(Stage::kCommand, ErrorCode::kInvalidValue, std::move(message));
}

tl::unexpected<Error> refuse_time(std::string_view whose, double us) {
  return refuse_race(fmt::format("round of a race: {}: got {} microseconds, wanted {} to {}", whose,
                                 us, kShortestUs, kLongestUs));
}

// Returns whether there is a look after this many rounds: 2^k or 3 * 2^k.
constexpr bool is_look(int32_t rounds) {
  const auto count = static_cast<uint32_t>(std::max(rounds, 0));
  return std::has_single_bit(count) ? count > 1 : count % 3 == 0 && std::has_single_bit(count / 3);
}

constexpr int32_t kFewestForDrop = 2;    // rounds; with fewer there is no scatter
constexpr double kMedianError = 1.2533;  // sqrt(pi / 2): a median's standard error over a mean's

// The default's times of a round.
struct DefaultTimes {
  double base_us = 0.0;      // what ratios are divided by
  double place_ratio = 1.0;  // see Outcome::noise
};

DefaultTimes default_times(const Round& round) {
  const double outer_us = std::sqrt(round.default_first_us * round.default_last_us);
  if (round.default_inner_us.empty())
    return {.base_us = outer_us, .place_ratio = round.default_last_us / round.default_first_us};
  double sum = 0.0;
  for (const double us : round.default_inner_us) sum += std::log(us);
  const double inner_us = std::exp(sum / static_cast<double>(round.default_inner_us.size()));
  return {.base_us = inner_us, .place_ratio = outer_us / inner_us};
}

}  // namespace

std::string_view to_string(Fault fault) {
  switch (fault) {
    case Fault::kDoesNotCompile: return "does_not_compile";
    case Fault::kSpills: return "spills";
    case Fault::kDoesNotLaunch: return "does_not_launch";
    case Fault::kCrashes: return "crashes";
    case Fault::kHangs: return "hangs";
    case Fault::kNotFinite: return "not_finite";
    case Fault::kChangesBits: return "changes_bits";
  }
  return "unknown";
}

std::optional<Fault> fault_named(std::string_view name) {
  for (const Fault fault : {Fault::kDoesNotCompile, Fault::kSpills, Fault::kDoesNotLaunch,
                            Fault::kCrashes, Fault::kHangs, Fault::kNotFinite, Fault::kChangesBits})
    if (to_string(fault) == name) return fault;
  return std::nullopt;
}

RaceRules exhaustive_rules(int32_t rounds) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  return {.most_rounds = rounds,
          .wild_rounds = rounds,
          .most_timings = std::numeric_limits<int32_t>::max(),
          .drop_errors = kNever,
          .futile_errors = kNever,
          .win_errors = kNever};
}

Race::Race(int32_t candidates, const RaceRules& rules) : rules_(rules) {
  rules_.least_rounds = std::max(rules_.least_rounds, 1);
  rules_.most_rounds = std::max(rules_.most_rounds, 1);
  runners_.resize(static_cast<std::size_t>(std::max(candidates, 1)));
}

int32_t Race::most_rounds() const {
  const bool is_wild = rounds() >= rules_.trial_rounds && deviation_ > rules_.wild_scatter;
  return is_wild ? std::min(rules_.wild_rounds, rules_.most_rounds) : rules_.most_rounds;
}

std::vector<int32_t> Race::racing() const {
  std::vector<int32_t> racing;
  if (is_over_) return racing;
  for (std::size_t i = 1; i < runners_.size(); ++i)
    if (runners_[i].is_contender() && runners_[i].rounds() < most_rounds())
      racing.push_back(static_cast<int32_t>(i));
  return racing;
}

int32_t Race::rounds_to_look() const {
  int32_t next = rounds() + 1;
  while (!is_look(next)) ++next;
  return next - rounds();
}

Result<void> Race::check(const Round& round) const {
  std::vector<double> default_us = round.default_inner_us;
  default_us.insert(default_us.end(), {round.default_first_us, round.default_last_us});
  for (const double us : default_us)
    if (!is_time_us(us)) return refuse_time("default", us);
  if (round.candidates_us.empty())
    return refuse_race("round of a race: got no candidate, wanted one or more that race");
  const std::vector<int32_t> racing = this->racing();
  for (const auto& [candidate, us] : round.candidates_us) {
    if (!std::ranges::binary_search(racing, candidate))
      return refuse_race(
          fmt::format("round of a race: got candidate {}, which does not race", candidate));
    if (!is_time_us(us)) return refuse_time(fmt::format("candidate {}", candidate), us);
  }
  return {};
}

Result<void> Race::add(const Round& round) {
  MOEJIT_TRY(check(round));
  const DefaultTimes usual = default_times(round);
  place_ratios_.push_back(usual.place_ratio);
  has_bare_rounds_ = has_bare_rounds_ || round.default_inner_us.empty();
  for (const auto& [candidate, us] : round.candidates_us) {
    Runner& runner = runners_[static_cast<std::size_t>(candidate)];
    const double ratio = us / usual.base_us;
    if (runner.rounds() > 0 && runner.last_round + 1 == rounds())
      scatter_.add(runner.ratios.back(), ratio);
    runner.ratios.push_back(ratio);
    runner.last_round = rounds();
  }
  if (is_look(rounds())) look();
  return {};
}

Result<void> Race::add_racing(Round round) {
  const std::vector<int32_t> racing = this->racing();
  std::erase_if(round.candidates_us, [&](const auto& timed) {
    return !std::ranges::binary_search(racing, timed.first);
  });
  return round.candidates_us.empty() ? Result<void>{} : add(round);
}

Result<void> Race::disqualify(int32_t candidate, Fault fault) {
  if (candidate < 1 || static_cast<std::size_t>(candidate) >= runners_.size())
    return refuse_race(fmt::format("cannot disqualify candidate {} ({}): wanted 1 to {}", candidate,
                                   to_string(fault), runners_.size() - 1));
  Runner& runner = runners_[static_cast<std::size_t>(candidate)];
  if (runner.fault) return {};
  runner.fault = fault;
  if (runner.dropped_after > 0) return {};
  for (Runner& other : runners_) other.dropped_after = 0;
  look();
  return {};
}

void Race::refresh() {
  for (Runner& runner : runners_) runner.figure = median_interval(runner.ratios);
  place_figure_ = median_interval(place_ratios_);
  deviation_ = std::max(scatter_.deviation(), rules_.least_scatter);
}

void Race::look() {
  refresh();
  drop_slower();
  drop_futile();
  drop_surplus();
  is_over_ = is_clear();
}

// Returns the standard error of the runner's median, as a share of the median.
double Race::error_of(const Runner& runner) const {
  return kMedianError * deviation_ / std::sqrt(std::max(runner.rounds(), 1));
}

// Also compares with the default: a candidate that is far behind it will not win either.
void Race::drop_slower() {
  const Runner* best = best_contender(kFewestForDrop);
  if (best == nullptr) return;
  const double first = std::min(best->figure.median, 1.0);
  for (Runner& runner : runners_) {
    if (!runner.is_contender() || runner.rounds() < kFewestForDrop) continue;
    const double error = std::numbers::sqrt2 * error_of(runner);
    const double margin = std::max(rules_.indifference, rules_.drop_errors * error);
    if (runner.figure.median > first * (1.0 + margin)) runner.dropped_after = runner.rounds();
  }
}

void Race::drop_futile() {
  for (Runner& runner : runners_) {
    if (!runner.is_contender() || runner.rounds() < rules_.trial_rounds) continue;
    const double margin = rules_.futile_errors * error_of(runner);
    if (runner.figure.median > (1.0 - rules_.indifference) * (1.0 + margin))
      runner.dropped_after = runner.rounds();
  }
}

// If medians are equal, the cheaper candidate stays.
void Race::drop_surplus() {
  if (rounds() < rules_.trial_rounds) return;
  std::vector<Runner*> contenders;
  for (std::size_t i = 1; i < runners_.size(); ++i)
    if (runners_[i].is_contender() && runners_[i].rounds() > 0) contenders.push_back(&runners_[i]);
  const auto most = static_cast<std::size_t>(std::max(rules_.most_timings / rounds(), 1));
  std::ranges::stable_sort(contenders, {}, [](const Runner* r) { return r->figure.median; });
  for (std::size_t i = most; i < contenders.size(); ++i)
    contenders[i]->dropped_after = contenders[i]->rounds();
}

double Race::bias() const {
  if (rounds() < kFewestForInterval) return std::numeric_limits<double>::infinity();
  if (!has_bare_rounds_) return 0.0;
  return std::max({0.0, place_figure_.low - 1.0, 1.0 - place_figure_.high});
}

double Race::zone() const { return std::max(rules_.indifference, 2.0 * bias()); }

bool Race::may_win(const Runner& runner) const {
  if (!runner.is_contender() || runner.rounds() < rules_.least_rounds) return false;
  const MedianInterval& figure = runner.figure;
  const double least_gain = rules_.win_errors * error_of(runner);
  return figure.median <= 1.0 - zone() &&
         std::max(figure.high, figure.median * (1.0 + least_gain)) < 1.0 - bias();
}

// Returns the contender with the lowest median among contenders with at least so many rounds, or
// null.
const Race::Runner* Race::best_contender(int32_t least_rounds) const {
  const Runner* best = nullptr;
  for (std::size_t i = 1; i < runners_.size(); ++i) {
    const Runner& runner = runners_[i];
    if (!runner.is_contender() || runner.rounds() < least_rounds) continue;
    if (best == nullptr || runner.figure.median < best->figure.median) best = &runner;
  }
  return best;
}

// Returns whether the best may win and no other contender may be better by the indifference.
bool Race::is_clear() const {
  const Runner* best = best_contender(rules_.least_rounds);
  if (best == nullptr || !may_win(*best)) return false;
  return std::all_of(runners_.begin() + 1, runners_.end(), [&](const Runner& runner) {
    const double error = std::numbers::sqrt2 * error_of(runner);
    return !runner.is_contender() || (runner.rounds() >= rules_.least_rounds &&
                                      runner.figure.median * (1.0 - error) >=
                                          best->figure.median * (1.0 - rules_.indifference));
  });
}

int32_t Race::winner() const {
  const MedianInterval* best = nullptr;
  for (const Runner& runner : runners_)
    if (may_win(runner) && (best == nullptr || runner.figure.median < best->median))
      best = &runner.figure;
  for (std::size_t i = 1; i < runners_.size(); ++i) {
    const MedianInterval& figure = runners_[i].figure;
    if (may_win(runners_[i]) && figure.low <= best->high &&
        figure.median <= best->median + rules_.indifference)
      return static_cast<int32_t>(i);
  }
  return 0;
}

Outcome Race::outcome() const {
  Race current = *this;
  current.refresh();
  const MedianInterval& place = current.place_figure_;
  Outcome outcome;
  outcome.winner = current.winner();
  outcome.is_settled = racing().empty();
  outcome.noise = 0.5 * (place.high - place.low);
  outcome.zone = current.zone();
  for (const Runner& runner : current.runners_)
    outcome.standings.push_back({.rounds = runner.rounds(),
                                 .median_ratio = runner.figure.median,
                                 .low = runner.figure.low,
                                 .high = runner.figure.high,
                                 .dropped_after = runner.dropped_after,
                                 .fault = runner.fault});
  Standing& standing = outcome.standings.front();  // the default's
  standing.rounds = rounds();
  standing.median_ratio = standing.low = standing.high = 1.0;
  return outcome;
}

}  // namespace moejit::tune
