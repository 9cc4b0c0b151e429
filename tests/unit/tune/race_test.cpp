// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/race.h"

#include "tests/unit/tune/race_rounds.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

namespace moejit::tune {
namespace {

using testing::succeeded;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

using Candidates = std::vector<int32_t>;

TEST(Race, IsOverBeforeItStartsIfTheDefaultIsAlone) {
  const Race race(1);
  EXPECT_EQ(race.racing(), Candidates{});
  EXPECT_TRUE(race.outcome().is_settled);
  EXPECT_EQ(race.outcome().winner, 0);
}

TEST(Race, HasADefaultEvenIfAskedForNone) { EXPECT_EQ(Race(-1).outcome().standings.size(), 1U); }

TEST(Race, KeepsTheDefaultBeforeTheFirstRound) {
  const Race race(3);
  EXPECT_EQ(race.racing(), (Candidates{1, 2}));
  const Outcome outcome = race.outcome();
  EXPECT_EQ(outcome.winner, 0);
  EXPECT_FALSE(outcome.is_settled);
  EXPECT_EQ(outcome.noise, kInfinity);
  EXPECT_EQ(outcome.zone, kInfinity);
  EXPECT_EQ(outcome.standings[1], Standing{});
}

TEST(Race, DividesByTheGeometricMeanOfTheDefaultsTimes) {
  Race race(2);
  ASSERT_TRUE(succeeded(
      race.add({.default_first_us = 80, .default_last_us = 125, .candidates_us = {{1, 90}}})));
  EXPECT_DOUBLE_EQ(race.outcome().standings[1].median_ratio, 0.9);  // sqrt(80 * 125) = 100
}

TEST(Race, EndsAfterSixRoundsIfTheGainIsPlain) {
  Race race(2);
  race_on(race, {90}, 16);
  const Outcome outcome = race.outcome();
  EXPECT_EQ(outcome.winner, 1);
  EXPECT_TRUE(outcome.is_settled);
  EXPECT_EQ(outcome.noise, 0.0);
  EXPECT_EQ(outcome.zone, 0.01);
  EXPECT_EQ(
      outcome.standings[0],
      (Standing{
          .rounds = 6, .median_ratio = 1, .low = 1, .high = 1, .dropped_after = 0, .fault = {}}));
  EXPECT_EQ(outcome.standings[1], (Standing{.rounds = 6,
                                            .median_ratio = 0.9,
                                            .low = 0.9,
                                            .high = 0.9,
                                            .dropped_after = 0,
                                            .fault = {}}));
}

TEST(Race, ChoosesNothingBeforeSixRounds) {
  Race race(2);
  race_on(race, {50}, 5);
  EXPECT_EQ(race.outcome().winner, 0);
  EXPECT_FALSE(race.outcome().is_settled);
}

TEST(Race, KeepsTheDefaultIfTheGainIsWithinTheIndifference) {
  Race race(2);
  race_on(race, {99.5}, 16);
  EXPECT_EQ(race.outcome().winner, 0);
  EXPECT_TRUE(race.outcome().is_settled);
}

TEST(Race, DropsAfterTwoRoundsWhatIsTenPercentBehindTheBest) {
  Race race(4);
  race_on(race, {80, 89, 87}, 1);
  EXPECT_EQ(race.racing(), (Candidates{1, 2, 3}));
  race_on(race, {80, 89, 87}, 1);  // 1.10 * 80 = 88
  EXPECT_EQ(race.racing(), (Candidates{1, 3}));
  EXPECT_EQ(race.outcome().standings[2].dropped_after, 2);
}

TEST(Race, DropsAfterFourRoundsWhatIsFourPercentBehindTheBest) {
  Race race(4);
  race_on(race, {80, 84, 83}, 3);
  EXPECT_EQ(race.racing(), (Candidates{1, 2, 3}));
  race_on(race, {80, 84, 83}, 1);  // 1.04 * 80 = 83.2
  EXPECT_EQ(race.racing(), (Candidates{1, 3}));
  EXPECT_EQ(race.outcome().standings[2].dropped_after, 4);
}

TEST(Race, DropsWhatIsFarBehindTheDefault) {
  Race race(3);
  race_on(race, {111, 105}, 2);
  EXPECT_EQ(race.racing(), Candidates{2});
  race_on(race, {111, 105}, 2);
  EXPECT_EQ(race.racing(), Candidates{});
  EXPECT_EQ(race.outcome().winner, 0);
  EXPECT_TRUE(race.outcome().is_settled);
}

TEST(Race, DropsByIntervalsAfterSixRounds) {
  Race race(3, {.indifference = 0.001});
  race_on(race, {90, 92}, 5);
  EXPECT_EQ(race.racing(), (Candidates{1, 2}));
  race_on(race, {90, 92}, 1);
  EXPECT_EQ(race.outcome().standings[2].dropped_after, 6);
  EXPECT_EQ(race.outcome().winner, 1);
}

TEST(Race, GoesOnWhileTheBestTwoMayDiffer) {
  Race race(3);
  for (int32_t i = 0; i < 6; ++i)  // 1: 85 to 87, median 86; 2: 87 to 90, median 88.5
    ASSERT_TRUE(succeeded(race.add(round_of(race, {i < 3 ? 85.0 : 87.0, i < 3 ? 87.0 : 90.0}))));
  EXPECT_EQ(race.racing(), (Candidates{1, 2}));
  EXPECT_EQ(race.outcome().winner, 1);
}

TEST(Race, EndsIfTheBestTwoDifferByLessThanTheIndifference) {
  Race race(3);
  for (int32_t i = 0; i < 6; ++i)  // medians 86 and 86.5, and the intervals overlap
    ASSERT_TRUE(succeeded(race.add(round_of(race, {i < 3 ? 85.0 : 87.0, i < 3 ? 85.5 : 87.5}))));
  EXPECT_TRUE(race.outcome().is_settled);
}

TEST(Race, ChoosesTheFirstInTheListAmongTies) {
  Race race(4);
  // Candidate 3 has the lowest median, 87; the interval of 2 begins below the end of that of 3, and
  // its median is 87.8.
  for (int32_t i = 0; i < 6; ++i)
    ASSERT_TRUE(
        succeeded(race.add(round_of(race, {88.2, i < 1 ? 87.2 : 87.8, i < 3 ? 86.6 : 87.4}))));
  const Outcome outcome = race.outcome();
  EXPECT_EQ(outcome.standings[1].dropped_after, 6);
  EXPECT_EQ(outcome.winner, 2);
}

TEST(Race, TakesNoTieWhoseMedianIsFurtherBehindThanTheIndifference) {
  Race race(3);
  // The medians are 88 and 86, and the intervals touch.
  for (int32_t i = 0; i < 6; ++i)
    ASSERT_TRUE(succeeded(race.add(round_of(race, {i < 1 ? 87.0 : 88.0, i < 3 ? 85.0 : 87.0}))));
  EXPECT_EQ(race.outcome().winner, 2);
}

TEST(Race, EndsAfterTheMostRounds) {
  Race race(2, {.most_rounds = 8});
  for (int32_t i = 0; i < 8; ++i)
    ASSERT_TRUE(succeeded(race.add(round_of(race, {i % 2 == 0 ? 97.0 : 101.0}))));
  const Outcome outcome = race.outcome();
  EXPECT_TRUE(outcome.is_settled);
  EXPECT_EQ(outcome.winner, 0);
  EXPECT_EQ(outcome.standings[1].rounds, 8);
  EXPECT_FALSE(race.add({.default_first_us = 1, .default_last_us = 1, .candidates_us = {{1, 1}}}));
}

TEST(Race, BelievesNoGainWithinTwiceTheNoise) {
  Race race(2);
  for (int32_t i = 0; i < 16; ++i) {
    // last / first is 0.96 and 1.04 by turns: noise 0.04, zone 0.08. The candidate gains 5 %.
    const double last = i % 2 == 0 ? 96 : 104;
    ASSERT_TRUE(succeeded(race.add({.default_first_us = 100,
                                    .default_last_us = last,
                                    .candidates_us = {{1, 0.95 * std::sqrt(100 * last)}}})));
  }
  const Outcome outcome = race.outcome();
  EXPECT_NEAR(outcome.noise, 0.04, 1e-12);
  EXPECT_NEAR(outcome.zone, 0.08, 1e-12);
  EXPECT_EQ(outcome.winner, 0);
  EXPECT_TRUE(outcome.is_settled);
}

TEST(Race, BelievesNoGainThatManyRoundsDeny) {
  Race race(2);
  // The candidate takes 99.5 % in 6 of 16 rounds, and the 13th ratio in order is one of these.
  for (int32_t i = 0; i < 16; ++i) {
    const bool is_slow = i % 8 == 1 || i % 8 == 4 || i % 8 == 6;
    ASSERT_TRUE(succeeded(race.add(round_of(race, {is_slow ? 99.5 : 90.0}))));
  }
  const Outcome outcome = race.outcome();
  EXPECT_DOUBLE_EQ(outcome.standings[1].median_ratio, 0.9);
  EXPECT_DOUBLE_EQ(outcome.standings[1].high, 0.995);
  EXPECT_EQ(outcome.winner, 0);
}

TEST(Race, IsBlindToWhatSlowsAWholeRound) {
  Race even(3), uneven(3);
  for (int32_t i = 0; i < 16; ++i) {
    if (even.racing().empty()) break;
    Round round = round_of(even, {i % 3 == 0 ? 96.0 : 97.5, i % 2 == 0 ? 96.5 : 98.0});
    ASSERT_TRUE(succeeded(even.add(round)));
    const double slowdown = std::ldexp(1.0, i % 4 - 2);  // powers of two, which do not round
    round.default_first_us *= slowdown;
    round.default_last_us *= slowdown;
    for (auto& [candidate, us] : round.candidates_us) us *= slowdown;
    ASSERT_TRUE(succeeded(uneven.add(round)));
  }
  EXPECT_EQ(even.outcome(), uneven.outcome());
}

TEST(Race, HasTheSameOutcomeForTheSameRounds) {
  Race first(4), second(4);
  for (Race* race : {&first, &second}) race_on(*race, {97.25, 96.5, 98.125}, 16);
  EXPECT_EQ(first.outcome(), second.outcome());
}

TEST(Race, CountsRoundsForEachCandidate) {
  Race race(3);
  ASSERT_TRUE(succeeded(
      race.add({.default_first_us = 100, .default_last_us = 100, .candidates_us = {{2, 90}}})));
  race_on(race, {90, 90}, 5);
  EXPECT_EQ(race.racing(), (Candidates{1, 2}));  // 1 has 5 rounds, 2 has 6
  EXPECT_EQ(race.outcome().standings[1].rounds, 5);
  EXPECT_EQ(race.outcome().standings[2].rounds, 6);
}

TEST(RaceTimes, AreRefusedIfTheyAreNone) {
  Race race(2);
  for (const double us : {kNan, kInfinity, -kInfinity, 0.0, -1.0, 1e-300, 1e300}) {
    EXPECT_FALSE(race.add({us, 100, {{1, 100}}})) << us;
    EXPECT_FALSE(race.add({100, us, {{1, 100}}})) << us;
    EXPECT_FALSE(race.add({100, 100, {{1, us}}})) << us;
  }
  EXPECT_EQ(race.outcome(), Race(2).outcome());
}

TEST(RaceTimes, AreRefusedOfCandidatesThatDoNotRace) {
  Race race(3);
  ASSERT_TRUE(succeeded(race.disqualify(2, Fault::kHangs)));
  for (const int32_t candidate : {-1, 0, 2, 3})
    EXPECT_FALSE(race.add({100, 100, {{1, 100}, {candidate, 100}}})) << candidate;
  EXPECT_FALSE(race.add({100, 100, {}}));
  EXPECT_EQ(race.outcome().standings[1].rounds, 0);
}

}  // namespace
}  // namespace moejit::tune
