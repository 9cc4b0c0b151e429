// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/race_kernel.h"

#include "runtime/measure/versioned_kernel.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/core.h>
#include <random>
#include <span>
#include <utility>

namespace moejit::tune {
namespace {

using compiler::Choices;

constexpr int32_t kMostFailedRounds = 3;

class KernelRace {
 public:
  KernelRace(const TuneProblem& problem, std::size_t index, const RaceSite& site, Race& race)
      : problem_(problem),
        index_(index),
        site_(site),
        race_(race),
        crashes_(problem.candidates.size()) {}

  Result<void> run() {
    if (is_over()) return {};
    MOEJIT_TRY(open());
    MOEJIT_TRY(make_versions());
    if (is_over()) return {};
    MOEJIT_TRY(heat());
    while (!is_over()) {
      MOEJIT_TRY(run_rounds());
      MOEJIT_TRY(make_versions());  // candidates that race again since another one is out
    }
    return {};
  }

 private:
  bool is_over() const { return race_.racing().empty() || site_.stops(); }

  Result<void> open() {
    MOEJIT_TRY(site_.measurer.open(index_));
    made_.assign(problem_.candidates.size(), false);
    made_.front() = true;
    return {};
  }

  Result<void> heat() {
    MOEJIT_TRY_ASSIGN(usual_us_,
                      site_.measurer.heat(site_.times.heat_seconds, site_.times.most_heat_seconds));
    return {};
  }

  // Makes the versions that race and are not made yet. If one of them is ruled out, others may race
  // again.
  Result<void> make_versions() {
    while (true) {
      const std::vector<int32_t> racing = race_.racing();
      const auto next = std::ranges::find_if(racing, [&](int32_t i) { return !is_made(i); });
      if (next == racing.end() || site_.stops()) return {};
      MOEJIT_TRY(make(*next));
    }
  }

  bool is_made(int32_t candidate) const { return made_[static_cast<std::size_t>(candidate)]; }

  Result<void> make(int32_t candidate) {
    const Result<int64_t> differing = site_.measurer.make(candidate);
    if (differing && *differing == 0) {
      made_[static_cast<std::size_t>(candidate)] = true;
      return {};
    }
    if (differing)
      return rule_out(candidate, Fault::kChangesBits,
                      fmt::format("{} words of the results differ", *differing));
    return take_failure(candidate, differing.error());
  }

  // Rules out a version that failed alone. A process may also end for another reason, such as a
  // system without memory. So only a version's second crash counts.
  Result<void> take_failure(int32_t candidate, const Error& error) {
    const std::optional<Fault> loss = site_.measurer.loss();
    const bool is_first_crash =
        loss == Fault::kCrashes && ++crashes_[static_cast<std::size_t>(candidate)] < 2;
    if (!is_first_crash)
      MOEJIT_TRY(rule_out(candidate, loss.value_or(fault_of(error)), error.message));
    return loss ? open() : Result<void>{};
  }

  static Fault fault_of(const Error& error) {
    switch (error.code) {
      case ErrorCode::kCompileFailed:
      case ErrorCode::kCompilerFault: return Fault::kDoesNotCompile;
      case ErrorCode::kSimulatorFault: return Fault::kCrashes;
      default: return Fault::kDoesNotLaunch;
    }
  }

  Result<void> rule_out(int32_t candidate, Fault fault, std::string detail) {
    MOEJIT_TRY(site_.journal.append(
        problem_.name,
        FoundFault{.choices = choices_of(candidate), .fault = fault, .detail = std::move(detail)}));
    return race_.disqualify(candidate, fault);
  }

  const Choices& choices_of(int32_t candidate) const {
    return problem_.candidates[static_cast<std::size_t>(candidate)];
  }

  int64_t launches() const { return measure::launches_for(site_.times.block_seconds, usual_us_); }

  double block_seconds() const { return 1e-6 * usual_us_ * static_cast<double>(launches()); }

  // Returns the versions of a round in their order. The usual version is first and last. In
  // between, in random order, are all versions that race and the usual version some more times.
  std::vector<int32_t> draw_order(std::span<const int32_t> racing) {
    std::vector<int32_t> order(racing.begin(), racing.end());
    order.insert(order.end(), static_cast<std::size_t>(default_places(racing.size())), 0);
    std::ranges::shuffle(order, random_);
    order.insert(order.begin(), 0);
    order.push_back(0);
    return order;
  }

  // Times a lead of the usual version, then rounds up to the next look.
  Result<void> run_rounds() {
    const std::vector<int32_t> racing = race_.racing();
    const auto lead =
        static_cast<std::size_t>(std::ceil(site_.times.lead_seconds / block_seconds()));
    std::vector<int32_t> order(lead, 0);
    std::vector<std::vector<int32_t>> rounds;
    double seconds = 0.0;
    do {
      rounds.push_back(draw_order(racing));
      order.insert(order.end(), rounds.back().begin(), rounds.back().end());
      seconds += block_seconds() * static_cast<double>(rounds.back().size());
    } while (seconds < site_.times.call_seconds && std::ssize(rounds) < race_.rounds_to_look());
    const Result<TimedBlocks> timed = site_.measurer.time(order, launches());
    if (!timed) return find_culprit(racing, timed.error());
    std::span<const double> times = std::span(timed->microseconds).subspan(lead);
    for (const std::vector<int32_t>& round : rounds) {
      MOEJIT_TRY(take_round(round, times.first(round.size()), *timed));
      times = times.subspan(round.size());
    }
    return {};
  }

  Result<void> take_round(std::span<const int32_t> order, std::span<const double> times,
                          const TimedBlocks& timed) {
    ++rounds_;
    std::vector<Event> blocks;
    Round round{.default_first_us = times.front(), .default_last_us = times.back()};
    for (std::size_t i = 0; i < order.size(); ++i) {
      const Place place = i == 0                  ? Place::kDefaultFirst
                          : i + 1 == order.size() ? Place::kDefaultLast
                                                  : Place::kCandidate;
      if (order[i] != 0)
        round.candidates_us[order[i]] = times[i];
      else if (place == Place::kCandidate)
        round.default_inner_us.push_back(times[i]);
      blocks.push_back(Block{.round = rounds_,
                             .place = place,
                             .choices = choices_of(order[i]),
                             .microseconds = times[i],
                             .megahertz = timed.megahertz,
                             .watts = timed.watts});
    }
    MOEJIT_TRY(site_.journal.append_all(problem_.name, blocks));
    return race_.add_racing(std::move(round));
  }

  // After rounds that failed, times each of their versions alone. Rules out versions that fail
  // again.
  Result<void> find_culprit(std::span<const int32_t> racing, const Error& error) {
    if (++failed_rounds_ == kMostFailedRounds) return tl::make_unexpected(error);
    if (site_.measurer.loss()) MOEJIT_TRY(open());
    MOEJIT_TRY(heat());
    for (const int32_t candidate : racing) {
      if (site_.stops()) return {};
      if (!is_made(candidate)) MOEJIT_TRY(make(candidate));
      if (!is_made(candidate)) continue;
      const Result<TimedBlocks> alone = site_.measurer.time(std::array{candidate}, launches());
      if (alone) continue;
      // It has failed in a round before, so a crash now counts as its second one.
      crashes_[static_cast<std::size_t>(candidate)] = 1;
      MOEJIT_TRY(take_failure(candidate, alone.error()));
    }
    return {};
  }

  const TuneProblem& problem_;
  const std::size_t index_;
  const RaceSite& site_;
  Race& race_;
  std::vector<bool> made_;        // by candidate, since the problem was opened
  std::vector<int32_t> crashes_;  // by candidate
  int32_t rounds_ = 0;
  int32_t failed_rounds_ = 0;
  double usual_us_ = 1.0;
  std::mt19937_64 random_{1};  // the order within a round
};

}  // namespace

Result<void> race_kernel(const TuneProblem& problem, std::size_t index, const RaceSite& site,
                         Race& race) {
  Result<void> raced = KernelRace(problem, index, site, race).run();
  // The first crash has no culprit: a system without memory ends processes, too. So the race gets a
  // second try.
  if (!raced && site.measurer.loss() == Fault::kCrashes && site.measurer.is_usable())
    raced = KernelRace(problem, index, site, race).run();
  return raced;
}

}  // namespace moejit::tune
