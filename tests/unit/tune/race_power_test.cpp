// SPDX-License-Identifier: Apache-2.0
// What races believe and what they miss at the scatter that was recorded at a GPU's power limit,
// where two blocks of one kernel differ by 3 to 6 %. Seeds are fixed, so that counts are facts.
#include "runtime/tune/decision/race.h"
#include "tests/unit/tune/recorded_scatter.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <vector>

namespace moejit::tune {
namespace {

using testing::succeeded;

constexpr double kBlockSeconds = 0.015;
// Many where the count is near to its bound, so that another seed would give the same verdict.
constexpr int32_t kRaces = 600, kManyRaces = 2000;

// What many races with the same candidates came to.
struct Tally {
  int32_t replaced = 0;      // races that another candidate than the default won
  int32_t good = 0;          // of these, with one within 1 % of the fastest
  std::vector<double> lost;  // by race, ascending: the winner's time over the fastest's, less 1
  double seconds = 0.0;      // of blocks, in the mean race

  double lost_in(double share) const {
    return lost[static_cast<std::size_t>(share * static_cast<double>(lost.size() - 1))];
  }
};

Tally tally(int32_t races, const std::vector<double>& speeds,
            const std::vector<double>& places = {}) {
  std::vector<std::vector<double>> scatters;
  for (const auto& [problem, scatter] : recorded_scatter())
    if (problem != "19" && problem != "20") scatters.push_back(scatter);
  const double fastest = *std::ranges::min_element(speeds);
  Tally tally;
  for (int32_t i = 0; i < races; ++i) {
    RecordedGpu gpu(static_cast<uint64_t>(1 + i),
                    scatters[static_cast<std::size_t>(i) % scatters.size()]);
    Race race(static_cast<int32_t>(speeds.size()));
    while (!race.racing().empty()) {
      const Round round = gpu.round(race, speeds, places);
      tally.seconds +=
          kBlockSeconds / races *
          static_cast<double>(2 + round.default_inner_us.size() + round.candidates_us.size());
      EXPECT_TRUE(succeeded(race.add(round)));
    }
    const int32_t winner = race.outcome().winner;
    tally.lost.push_back(speeds[static_cast<std::size_t>(winner)] / fastest - 1.0);
    tally.replaced += winner != 0 ? 1 : 0;
    tally.good += winner != 0 && tally.lost.back() <= 0.01 ? 1 : 0;
  }
  std::ranges::sort(tally.lost);
  return tally;
}

// Returns 25 speeds: copies of the default, and one that gains so much in the middle of the list.
std::vector<double> one_that_gains(double gain) {
  std::vector<double> speeds(25, 1.0);
  speeds[12] -= gain;
  return speeds;
}

// Returns 25 speeds: the default, and others from the fastest on in steps of 0.6 %, mixed.
std::vector<double> field(double gain) {
  std::vector<double> speeds(25, 1.0);
  for (std::size_t i = 1; i < speeds.size(); ++i)
    speeds[i] = 1.0 - gain + 0.006 * static_cast<double>(7 * i % 24);
  return speeds;
}

TEST(RacePower, CopiesOfTheDefaultReplaceItInOneRaceOfAHundred) {
  const Tally of_24 = tally(kManyRaces, std::vector<double>(25, 1.0));
  EXPECT_LE(of_24.replaced, kManyRaces / 100);
  EXPECT_LE(of_24.seconds, 15.0);
  EXPECT_LE(tally(kRaces, std::vector<double>(5, 1.0)).replaced, kRaces / 100);
  EXPECT_LE(tally(kManyRaces, {1.0, 1.0}).replaced, kManyRaces / 100);
}

// The first blocks after a pause were faster like this in the recorded rounds.
TEST(RacePower, CopiesDoNotWinThoughTheFirstPlacesAreFaster) {
  const std::vector<double> places = {0.99, 0.97, 0.985, 0.995};
  EXPECT_LE(tally(kRaces, std::vector<double>(25, 1.0), places).replaced, kRaces / 100);
  EXPECT_LE(tally(kRaces, std::vector<double>(4, 1.0), places).replaced, kRaces / 100);
  EXPECT_LE(tally(kManyRaces, {1.0, 1.0}, places).replaced, kManyRaces / 100);
}

TEST(RacePower, AGainOfThreePercentWinsInNineteenRacesOfTwenty) {
  const Tally copies = tally(kRaces, one_that_gains(0.03));
  EXPECT_GE(copies.good, kRaces * 95 / 100);
  EXPECT_LE(copies.seconds, 15.0);
  EXPECT_GE(tally(kRaces, {1.0, 0.97}).good, kRaces * 95 / 100);
}

TEST(RacePower, AGainOfTwoPercentWinsInFourRacesOfFive) {
  const Tally copies = tally(kManyRaces, one_that_gains(0.02));
  EXPECT_GE(copies.good, kManyRaces * 80 / 100);
  EXPECT_LE(copies.seconds, 15.0);
}

TEST(RacePower, AFieldLosesLittle) {
  for (const double gain : {0.0, 0.01, 0.03}) {
    const Tally lost = tally(kRaces, field(gain));
    EXPECT_LE(lost.lost_in(0.50), 0.0102) << gain;  // 1 / 0.99 - 1, if the default stays at 1 %
    EXPECT_LE(lost.lost_in(0.95), 0.025) << gain;
    EXPECT_LE(lost.seconds, 15.0) << gain;
  }
}

}  // namespace
}  // namespace moejit::tune
