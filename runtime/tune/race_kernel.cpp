// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/race_kernel.h"

#include "runtime/measure/versioned_kernel.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/core.h>
#include <map>
#include <random>
#include <span>
#include <utility>

namespace moejit::tune {
namespace {

using compiler::Choices;

constexpr int32_t kMostFailedRounds = 3;
// Launches count as hanging after a version's limit plus this many times what the usual version's
// launches should take.
constexpr double kSlowest = 20.0;

class KernelRace {
 public:
  KernelRace(const TuneProblem& problem, std::size_t index, const RaceSite& site, Race& race)
      : problem_(problem), index_(index), site_(site), race_(race) {}

  Result<void> run() {
    MOEJIT_TRY(take_losses());
    if (is_over()) return {};
    MOEJIT_TRY(open());
    MOEJIT_TRY(make_versions());
    if (is_over()) return {};
    MOEJIT_TRY(heat());
    if (failed_rounds_ > 0) MOEJIT_TRY(find_culprit());
    while (true) {
      MOEJIT_TRY(make_versions());  // candidates that race again since another one is out
      if (is_over()) return {};
      MOEJIT_TRY(run_rounds());
    }
  }

 private:
  bool is_over() const { return race_.racing().empty() || site_.stops(); }

  // Rules out versions that ended a process before, or made it hang.
  Result<void> take_losses() {
    std::map<std::pair<Doing, int32_t>, int32_t> crashes;
    for (const Loss& loss : site_.losses) {
      if (loss.problem != index_) continue;
      const bool is_first_crash =
          ++crashes[{loss.doing, loss.candidate}] < 2 && loss.fault == Fault::kCrashes;
      switch (loss.doing) {
        case Doing::kOther: break;
        case Doing::kUsual:
          if (!is_first_crash) return lost(loss);
          break;
        case Doing::kMaking:
          if (!is_first_crash) MOEJIT_TRY(rule_out(loss.candidate, loss.fault, loss.message));
          break;
        case Doing::kRounds:
          if (++failed_rounds_ == kMostFailedRounds) return lost(loss);
          break;
        // It has failed in a round before.
        case Doing::kAlone: MOEJIT_TRY(rule_out(loss.candidate, loss.fault, loss.message)); break;
      }
    }
    return {};
  }

  static tl::unexpected<Error> lost(const Loss& loss) {
    return fail(Stage::kLaunch, ErrorCode::kDriver, loss.message);
  }

  void begin(Doing doing, int32_t candidate, double seconds) {
    site_.watch.begin(doing, index_, candidate, site_.times.candidate_seconds + kSlowest * seconds);
  }

  Result<void> open() {
    site_.watch.begin(Doing::kUsual, index_);
    MOEJIT_TRY(site_.measurer.open(index_));
    made_.assign(problem_.candidates.size(), false);
    made_.front() = true;
    return {};
  }

  Result<void> heat() {
    const RaceTimes& times = site_.times;
    begin(Doing::kUsual, 0, times.heat_seconds + times.most_heat_seconds);
    MOEJIT_TRY_ASSIGN(usual_us_, site_.measurer.heat(times.heat_seconds, times.most_heat_seconds));
    return {};
  }

  Result<TimedBlocks> time(Doing doing, std::span<const int32_t> candidates) {
    begin(doing, doing == Doing::kAlone ? candidates.front() : 0,
          block_seconds() * static_cast<double>(candidates.size()));
    return site_.measurer.time(candidates, launches());
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
    begin(Doing::kMaking, candidate, 0.0);
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

  // Rules out a version that failed alone, if the process can go on.
  Result<void> take_failure(int32_t candidate, const Error& error) {
    if (!site_.measurer.is_usable()) return tl::make_unexpected(error);
    return rule_out(candidate, fault_of(error), error.message);
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
    const bool is_out =
        race_.outcome().standings[static_cast<std::size_t>(candidate)].fault.has_value();
    if (is_out) return {};  // a process before this one has told it
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
    const Result<TimedBlocks> timed = time(Doing::kRounds, order);
    if (!timed) return take_failed_rounds(timed.error());
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

  Result<void> take_failed_rounds(const Error& error) {
    if (!site_.measurer.is_usable() || ++failed_rounds_ == kMostFailedRounds)
      return tl::make_unexpected(error);
    MOEJIT_TRY(heat());
    return find_culprit();
  }

  // Times each version alone. Rules out versions that fail again.
  Result<void> find_culprit() {
    for (const int32_t candidate : race_.racing()) {
      if (site_.stops()) return {};
      if (!is_made(candidate)) continue;
      const Result<TimedBlocks> alone = time(Doing::kAlone, std::array{candidate});
      if (!alone) MOEJIT_TRY(take_failure(candidate, alone.error()));
    }
    return {};
  }

  const TuneProblem& problem_;
  const std::size_t index_;
  const RaceSite& site_;
  Race& race_;
  std::vector<bool> made_;  // by candidate, since the problem was opened
  int32_t rounds_ = 0;
  int32_t failed_rounds_ = 0;
  double usual_us_ = 1.0;
  std::mt19937_64 random_{1};  // the order within a round
};

}  // namespace

Result<void> race_kernel(const TuneProblem& problem, std::size_t index, const RaceSite& site,
                         Race& race) {
  return KernelRace(problem, index, site, race).run();
}

}  // namespace moejit::tune
