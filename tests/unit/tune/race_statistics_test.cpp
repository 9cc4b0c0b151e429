// SPDX-License-Identifier: Apache-2.0
// Races on drawn times. Seeds are fixed and the draws are the same with every standard library, so
// that a count of wins is a fact and not a chance.
#include "runtime/tune/decision/race.h"
#include "tests/support/matchers.h"

#include <cmath>
#include <gtest/gtest.h>
#include <numbers>
#include <random>
#include <vector>

namespace moejit::tune {
namespace {

using testing::succeeded;

// A GPU on which the same kernel takes a bit longer or shorter each time, and whose clock wanders.
class NoisyGpu {
 public:
  // `noise` is the standard deviation of the ratio of two blocks in a row, `drift` how far the
  // clock wanders up or down.
  NoisyGpu(uint64_t seed, double noise, double drift)
      : random_(seed), noise_(noise / std::numbers::sqrt2), drift_(drift), phase_(uniform()) {}

  double time(double us) {
    phase_ += 0.011 + 0.004 * uniform();  // a wave lasts about 77 blocks
    const double clock = 1.0 + drift_ * std::sin(2.0 * std::numbers::pi * phase_);
    return us * clock * std::exp(noise_ * normal());
  }

  // Times a round of candidates that take `speeds` of the default's time.
  Round round(const Race& race, const std::vector<double>& speeds) {
    Round round;
    round.default_first_us = time(100);
    for (const int32_t candidate : race.racing())
      round.candidates_us[candidate] = time(100 * speeds[static_cast<std::size_t>(candidate)]);
    round.default_last_us = time(100);
    return round;
  }

 private:
  double uniform() { return static_cast<double>((random_() >> 11) + 1) * 0x1p-53; }  // in (0, 1]
  // Draws from the standard normal distribution, by Box and Muller.
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }

  std::mt19937_64 random_;
  double noise_, drift_, phase_;
};

// Returns how many of so many races each candidate won.
std::vector<int32_t> wins(int32_t races, const std::vector<double>& speeds, double noise,
                          double drift) {
  std::vector<int32_t> wins(speeds.size());
  for (int32_t i = 0; i < races; ++i) {
    NoisyGpu gpu(static_cast<uint64_t>(1000 + i), noise, drift);
    Race race(static_cast<int32_t>(speeds.size()));
    while (!race.racing().empty()) EXPECT_TRUE(succeeded(race.add(gpu.round(race, speeds))));
    EXPECT_TRUE(race.outcome().is_settled);
    ++wins[static_cast<std::size_t>(race.outcome().winner)];
  }
  return wins;
}

TEST(RaceStatistics, CopiesOfTheDefaultDoNotWin) {
  const std::vector<double> copies(9, 1.0);
  EXPECT_GE(wins(1000, copies, 0.01, 0.08)[0], 990);
}

TEST(RaceStatistics, CopiesOfTheDefaultDoNotWinOnACalmGpu) {
  const std::vector<double> copies(9, 1.0);
  EXPECT_GE(wins(1000, copies, 0.01, 0.0)[0], 990);
}

TEST(RaceStatistics, AGainOfThreePercentWins) {
  EXPECT_GE(wins(200, {1.0, 0.97}, 0.01, 0.0)[1], 190);
}

TEST(RaceStatistics, AGainOfThreePercentWinsAmongSlowerOnes) {
  EXPECT_GE(wins(200, {1.0, 1.02, 0.97, 1.05, 1.0}, 0.01, 0.0)[2], 190);
}

TEST(RaceStatistics, AGainOfSixPercentWinsThoughTheClockWanders) {
  EXPECT_GE(wins(200, {1.0, 0.94, 1.03}, 0.01, 0.08)[1], 190);
}

}  // namespace
}  // namespace moejit::tune
