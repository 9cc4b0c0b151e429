// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/decision/race.h"

#include "tests/unit/tune/infinity.h"
#include "tests/unit/tune/race_rounds.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace moejit::tune {
namespace {

using testing::succeeded;

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

// Without scatter a race reckons with 0.5 %: the difference of two medians of 2 rounds has a
// standard error of 0.63 %, and 3 of these are 1.9 %; after 4 rounds they are 1.3 %.
TEST(Race, DropsAfterTwoRoundsWhatIsFarBehindTheBest) {
  Race race(4);
  race_on(race, {80, 82, 81}, 1);
  EXPECT_EQ(race.racing(), (Candidates{1, 2, 3}));
  race_on(race, {80, 82, 81}, 1);  // 1.019 * 80 = 81.5
  EXPECT_EQ(race.racing(), (Candidates{1, 3}));
  EXPECT_EQ(race.outcome().standings[2].dropped_after, 2);
}

TEST(Race, DropsWhatIsFarBehindTheDefault) {
  Race race(3);
  race_on(race, {102.5, 101.5}, 2);
  EXPECT_EQ(race.racing(), Candidates{2});
  race_on(race, {102.5, 101.5}, 2);
  EXPECT_EQ(race.racing(), Candidates{});
  EXPECT_EQ(race.outcome().winner, 0);
  EXPECT_TRUE(race.outcome().is_settled);
}

TEST(Race, DropsNothingThatScatterMayHavePutBehind) {
  Race race(3);
  // The ratios of both change by 9 % from round to round, and their medians are 84 and 88.
  ASSERT_TRUE(succeeded(race.add(round_of(race, {80, 92}))));
  ASSERT_TRUE(succeeded(race.add(round_of(race, {88, 84}))));
  EXPECT_EQ(race.racing(), (Candidates{1, 2}));
}

TEST(Race, DropsWhatGainsLessThanTheIndifference) {
  Race race(3, {.win_errors = 100.0});
  race_on(race, {99.5, 99.1}, 7);
  EXPECT_EQ(race.racing(), (Candidates{1, 2}));
  race_on(race, {99.5, 99.1}, 1);  // 0.8 errors of a median of 8 are 0.18 %: 0.99 * 1.0018 = 0.9918
  EXPECT_EQ(race.racing(), Candidates{2});
}

TEST(Race, GoesOnWithFewerTheMoreRoundsThereAre) {
  Race race(25, {.win_errors = 100.0});
  const std::vector<double> percents(24, 98.5);
  race_on(race, percents, 7);
  EXPECT_EQ(race.racing().size(), 24U);
  for (const auto& [rounds, left] : {std::pair(8, 16U), std::pair(12, 10U), std::pair(16, 8U)}) {
    race_on(race, percents, rounds - race.outcome().standings[0].rounds);
    EXPECT_EQ(race.racing().size(), left) << rounds;  // 128 / rounds
  }
  EXPECT_EQ(race.racing().front(), 1);  // the cheapest of equals stay
}

TEST(Race, LooksLessOftenAsRoundsGoOn) {
  Race race(2, {.win_errors = 100.0});
  std::vector<int32_t> looks;
  for (int32_t round = 1; round <= 33; ++round) {
    if (race.rounds_to_look() == 1) looks.push_back(round);
    race_on(race, {98}, 1);
  }
  EXPECT_EQ(looks, (Candidates{2, 3, 4, 6, 8, 12, 16, 24, 32}));
  EXPECT_EQ(race.rounds_to_look(), 48 - 33);
}

TEST(Race, GoesOnWhileTheSecondMayBeTheBest) {
  Race race(3);
  // Both have the median 86. Two medians of 8 that change by 2.3 % a round may differ by 1.5 %.
  for (int32_t i = 0; i < 8; ++i)
    ASSERT_TRUE(
        succeeded(race.add(round_of(race, {i % 2 == 0 ? 85.0 : 87.0, i % 2 == 0 ? 87.0 : 85.0}))));
  EXPECT_EQ(race.racing(), (Candidates{1, 2}));
  EXPECT_EQ(race.outcome().winner, 1);
}

TEST(Race, EndsIfTheSecondCannotBeBetterByTheIndifference) {
  Race race(3);
  race_on(race, {86, 86.5}, 6);
  EXPECT_TRUE(race.outcome().is_settled);
}

TEST(Race, ChoosesTheFirstInTheListAmongTies) {
  Race race(4);
  // Candidate 3 has the lowest median, 87; the interval of 2 begins below the end of that of 3, and
  // its median is 87.8.
  for (int32_t i = 0; i < 6; ++i)
    ASSERT_TRUE(
        succeeded(race.add(round_of(race, {88.2, i < 1 ? 87.2 : 87.8, i % 2 == 0 ? 86.6 : 87.4}))));
  const Outcome outcome = race.outcome();
  EXPECT_GT(outcome.standings[1].dropped_after, 0);
  EXPECT_EQ(outcome.winner, 2);
}

TEST(Race, TakesNoTieWhoseMedianIsFurtherBehindThanTheIndifference) {
  Race race(3);
  // The medians are 88 and 86, and the intervals touch.
  for (int32_t i = 0; i < 8; ++i)
    ASSERT_TRUE(
        succeeded(race.add(round_of(race, {i < 1 ? 87.0 : 88.0, i % 2 == 0 ? 85.0 : 87.0}))));
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

// Returns a round of one candidate whose first block of the default takes 100 us, the last one
// `last_us`, and whose candidate takes `ratio` of their mean.
Round round_between(double last_us, double ratio) {
  return {.default_first_us = 100,
          .default_last_us = last_us,
          .candidates_us = {{1, ratio * std::sqrt(100 * last_us)}}};
}

TEST(Race, BelievesAGainThoughBlocksOfTheDefaultScatter) {
  Race race(2);
  for (int32_t i = 0; i < 6; ++i)
    ASSERT_TRUE(succeeded(race.add(round_between(i % 2 == 0 ? 96 : 104, 0.95))));
  const Outcome outcome = race.outcome();
  EXPECT_NEAR(outcome.noise, 0.04, 1e-12);
  EXPECT_EQ(outcome.zone, 0.01);
  EXPECT_EQ(outcome.winner, 1);
}

TEST(Race, BelievesNoGainWithinTwiceTheBiasOfPlaces) {
  Race small(2), large(2);
  for (int32_t i = 0; i < 6; ++i) {
    ASSERT_TRUE(succeeded(small.add(round_between(104, 0.925))));
    ASSERT_TRUE(succeeded(large.add(round_between(104, 0.915))));
  }
  EXPECT_NEAR(small.outcome().noise, 0.0, 1e-12);
  EXPECT_NEAR(small.outcome().zone, 0.08, 1e-12);
  EXPECT_EQ(small.outcome().winner, 0);
  EXPECT_EQ(large.outcome().winner, 1);
}

TEST(Race, HasNoBiasIfTheDefaultIsTimedInBetween) {
  Race race(2);
  for (int32_t i = 0; i < 6; ++i)
    ASSERT_TRUE(succeeded(race.add({.default_first_us = 80,
                                    .default_last_us = 160,
                                    .candidates_us = {{1, 95}},
                                    .default_inner_us = {80, 125}})));
  const Outcome outcome = race.outcome();
  EXPECT_DOUBLE_EQ(outcome.standings[1].median_ratio, 0.95);  // sqrt(80 * 125) = 100
  EXPECT_EQ(outcome.zone, 0.01);
  EXPECT_EQ(outcome.winner, 1);
}

TEST(Race, AddsOfARoundWhatRaces) {
  Race race(3);
  race_on(race, {80, 90}, 2);  // which drops 2
  ASSERT_TRUE(succeeded(race.add_racing({100, 100, {{1, 80}, {2, 90}}})));
  ASSERT_TRUE(succeeded(race.add_racing({100, 100, {{2, 90}}})));
  EXPECT_EQ(race.outcome().standings[0].rounds, 3);
  EXPECT_EQ(race.outcome().standings[1].rounds, 3);
  EXPECT_EQ(race.outcome().standings[2].rounds, 2);
}

TEST(Race, DropsNobodyAndNamesNoWinnerIfItIsExhaustive) {
  Race race(4, exhaustive_rules(20));
  // One that is far ahead, one that is far behind, and one that scatters by 35 %.
  for (int32_t i = 0; i < 20; ++i) {
    EXPECT_EQ(race.racing(), (std::vector<int32_t>{1, 2, 3}));
    ASSERT_TRUE(succeeded(race.add(round_of(race, {50, 900, i % 2 == 0 ? 75.0 : 105.0}))));
  }
  EXPECT_TRUE(race.racing().empty());
  EXPECT_EQ(race.outcome().winner, 0);
  EXPECT_EQ(race.outcome().standings[1].rounds, 20);
}

TEST(Race, EndsAfterSixteenRoundsIfTimesAreWild) {
  Race race(2);
  // A change by 35 % a round; the median is 90.
  for (int32_t i = 0; i < 16; ++i)
    ASSERT_TRUE(succeeded(race.add(round_of(race, {i % 2 == 0 ? 75.0 : 105.0}))));
  EXPECT_TRUE(race.outcome().is_settled);
  EXPECT_EQ(race.outcome().winner, 0);
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
    EXPECT_FALSE(race.add({100, 100, {{1, 100}}, {us}})) << us;
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
