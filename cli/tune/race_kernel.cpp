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
    MOEJIT_TRY_ASSIGN(usual_us_,
                      measure::heat(launches_.front(), site_.device, site_.times.heat_seconds,
                                    site_.times.most_heat_seconds));
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

  // Times the usual version, all that race in random order, and the usual version again.
  Result<void> run_round(int32_t number) {
    std::vector<int32_t> order = race_.racing();
    std::shuffle(order.begin(), order.end(), random_);
    order.insert(order.begin(), 0);
    order.push_back(0);
    std::vector<measure::LaunchBlock> blocks;
    for (const int32_t candidate : order)
      blocks.push_back({.launch = &launches_[static_cast<std::size_t>(candidate)],
                        .launches = measure::launches_for(site_.times.block_seconds, usual_us_)});
    if (site_.monitor != nullptr) site_.monitor->start();
    const Result<std::vector<double>> times = measure::time_blocks(blocks, site_.device);
    const measure::GpuSamples gpu =
        site_.monitor == nullptr ? measure::GpuSamples{} : site_.monitor->stop();
    if (!times) return tl::make_unexpected(times.error());
    tune::Round round{.default_first_us = times->front(), .default_last_us = times->back()};
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (order[i] != 0) round.candidates_us[order[i]] = (*times)[i];
      const Place place = i == 0                  ? Place::kDefaultFirst
                          : i + 1 == order.size() ? Place::kDefaultLast
                                                  : Place::kCandidate;
      MOEJIT_TRY(site_.journal.append(
          problem_.name, Block{.round = number,
                               .place = place,
                               .choices = problem_.candidates[static_cast<std::size_t>(order[i])],
                               .microseconds = (*times)[i],
                               .megahertz = gpu.mean_megahertz,
                               .watts = gpu.mean_watts}));
    }
    return race_.add(round);
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
