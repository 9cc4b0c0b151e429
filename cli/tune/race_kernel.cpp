// SPDX-License-Identifier: Apache-2.0
#include "cli/tune/race_kernel.h"

#include <algorithm>
#include <fmt/core.h>
#include <random>
#include <span>

namespace moejit::cli {
namespace {

using compiler::Choices;
using measure::Launch;
using tune::Block;
using tune::Fault;
using tune::Place;

Fault fault_of(const Error& error) {
  switch (error.code) {
    case ErrorCode::kCompileFailed:
    case ErrorCode::kCompilerFault: return Fault::kDoesNotCompile;
    case ErrorCode::kDriver:
    case ErrorCode::kSimulatorFault: return Fault::kCrashes;
    default: return Fault::kDoesNotLaunch;
  }
}

class KernelRace {
 public:
  KernelRace(const TuneProblem& problem, const RaceSite& site, tune::Race& race)
      : problem_(problem), site_(site), race_(race), launches_(problem.candidates.size()) {}

  Result<void> run() {
    MOEJIT_TRY_ASSIGN(const OpenedKernel opened, problem_.open(site_.engine, site_.device));
    MOEJIT_TRY_ASSIGN(auto comparison, measure::VersionComparison::create(
                                           opened.kernel, site_.engine, site_.device));
    launches_.front() = comparison.usual();
    MOEJIT_TRY(make_versions(comparison));
    if (site_.stops() || race_.racing().empty()) return {};
    MOEJIT_TRY_ASSIGN(const measure::TimedBlock hot,
                      measure::heat(launches_.front(), site_.device, site_.times.heat_seconds,
                                    site_.times.most_heat_seconds));
    usual_us_ = hot.microseconds;
    for (int32_t round = 1; !race_.racing().empty() && !site_.stops(); ++round)
      MOEJIT_TRY(run_round(round));
    return {};
  }

 private:
  Result<void> make_versions(measure::VersionComparison& comparison) {
    for (const int32_t i : race_.racing()) {
      if (site_.stops()) return {};
      const Choices& choices = problem_.candidates[static_cast<std::size_t>(i)];
      const Result<measure::MadeVersion> made = comparison.make(choices);
      if (made && made->differing_words == 0) {
        launches_[static_cast<std::size_t>(i)] = made->launch;
        continue;
      }
      MOEJIT_TRY(rule_out(i, made));
    }
    return {};
  }

  Result<void> rule_out(int32_t candidate, const Result<measure::MadeVersion>& made) {
    tune::FoundFault found{
        .choices = problem_.candidates[static_cast<std::size_t>(candidate)],
        .fault = made ? Fault::kChangesBits : fault_of(made.error()),
        .detail = made ? fmt::format("{} words of the results differ", made->differing_words)
                       : made.error().message};
    MOEJIT_TRY(site_.journal.append(problem_.name, found));
    MOEJIT_TRY(race_.disqualify(candidate, found.fault));
    if (!made && found.fault == Fault::kCrashes && !site_.device.is_host_memory())
      return tl::make_unexpected(made.error());  // nothing runs in this process any more
    return {};
  }

  Result<void> run_round(int32_t number) {
    tune::Round round;
    MOEJIT_TRY_ASSIGN(round.default_first_us, time(number, Place::kDefaultFirst, 0));
    std::vector<int32_t> order = race_.racing();
    std::shuffle(order.begin(), order.end(), random_);
    for (const int32_t candidate : order) {
      if (site_.stops()) return {};
      MOEJIT_TRY_ASSIGN(round.candidates_us[candidate],
                        time(number, Place::kCandidate, static_cast<std::size_t>(candidate)));
    }
    MOEJIT_TRY_ASSIGN(round.default_last_us, time(number, Place::kDefaultLast, 0));
    return race_.add(round);
  }

  Result<double> time(int32_t round, Place place, std::size_t candidate) {
    if (site_.monitor != nullptr) site_.monitor->start();
    const auto timed = measure::time_block(launches_[candidate], site_.device,
                                           site_.times.block_seconds, usual_us_);
    const measure::GpuSamples gpu =
        site_.monitor == nullptr ? measure::GpuSamples{} : site_.monitor->stop();
    if (!timed) return tl::make_unexpected(timed.error());
    MOEJIT_TRY(site_.journal.append(problem_.name, Block{.round = round,
                                                         .place = place,
                                                         .choices = problem_.candidates[candidate],
                                                         .microseconds = timed->microseconds,
                                                         .megahertz = gpu.mean_megahertz,
                                                         .watts = gpu.mean_watts}));
    return timed->microseconds;
  }

  const TuneProblem& problem_;
  const RaceSite& site_;
  tune::Race& race_;
  std::vector<Launch> launches_;  // by candidate; empty for those that are out
  double usual_us_ = 1.0;
  std::mt19937_64 random_{1};  // the order within a round
};

}  // namespace

Result<void> race_kernel(const TuneProblem& problem, const RaceSite& site, tune::Race& race) {
  return KernelRace(problem, site, race).run();
}

}  // namespace moejit::cli
