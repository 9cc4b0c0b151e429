// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/decision/step_confirmation.h"

#include "runtime/tune/decision/race.h"
#include "tests/unit/tune/step_rounds.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <limits>
#include <random>

namespace moejit::tune {
namespace {

using testing::succeeded;
using Names = std::vector<std::string>;

TEST(StepConfirmation, ConfirmsASetOnceItIsFasterForCertain) {
  StepConfirmation step(step_choices(2));
  measure(step, 98, 5);
  EXPECT_EQ(step.state(), StepState::kMeasuring);
  measure(step, 98, 1);
  EXPECT_EQ(step.state(), StepState::kConfirmed);
  EXPECT_EQ(problems_of(step.set()), (Names{"p100", "p101"}));
  EXPECT_TRUE(step.dropped().empty());
}

TEST(StepConfirmation, DropsTheLeastCertainChoiceOfASetThatIsSlowerForCertain) {
  StepConfirmation step(step_choices(3));
  measure(step, 100, 6);
  EXPECT_EQ(step.state(), StepState::kMeasuring);
  EXPECT_EQ(problems_of(step.set()), (Names{"p100", "p101"}));
  EXPECT_EQ(problems_of(step.dropped()), Names{"p102"});
  EXPECT_EQ(step.figure(), StepFigure{});
  measure(step, 97, 6);
  EXPECT_EQ(step.state(), StepState::kConfirmed);
  EXPECT_EQ(problems_of(step.dropped()), Names{"p102"});
}

TEST(StepConfirmation, DropsAChoiceIfSixteenRoundsDoNotDecide) {
  StepConfirmation step(step_choices(2));
  for (int32_t round = 0; round < 15; ++round) measure(step, round % 2 == 0 ? 99 : 101, 1);
  EXPECT_EQ(step.set().size(), 2U);
  EXPECT_EQ(step.figure().rounds, 15);
  measure(step, 101, 1);
  EXPECT_EQ(problems_of(step.set()), Names{"p100"});
}

TEST(StepConfirmation, EndsWithTheUsualChoicesIfEverySetIsSlower) {
  StepConfirmation step(step_choices(3));
  measure(step, 103, 18);
  EXPECT_EQ(step.state(), StepState::kUsual);
  EXPECT_EQ(step.sets(), 3);
  EXPECT_TRUE(step.set().empty());
  EXPECT_EQ(problems_of(step.dropped()), (Names{"p100", "p101", "p102"}));
}

TEST(StepConfirmation, OrdersChoicesByCertaintyThenByName) {
  std::vector<StepChoice> choices = step_choices(4);
  choices[0].certainty = choices[3].certainty = 0.02;
  choices[1].certainty = 0.01;
  choices[2].certainty = 0.0;  // the usual ones
  choices.push_back({.problem = "q", .certainty = std::numeric_limits<double>::quiet_NaN()});
  const StepConfirmation step(choices);
  EXPECT_EQ(problems_of(step.set()), (Names{"p100", "p103", "p101"}));
}

TEST(StepConfirmation, HasNothingToMeasureWithoutTunedChoices) {
  StepConfirmation step({{.problem = "p", .choices = {{"stages", 4}}}});
  EXPECT_EQ(step.state(), StepState::kUsual);
  EXPECT_EQ(step.sets(), 0);
  EXPECT_FALSE(step.add(step_times(90)));
}

TEST(StepConfirmation, HalvesALargeSet) {
  StepConfirmation step(step_choices(60));
  std::vector<std::size_t> sizes;
  while (step.state() == StepState::kMeasuring) {
    sizes.push_back(step.set().size());
    measure(step, 101, 6);
  }
  EXPECT_EQ(sizes, (std::vector<std::size_t>{60, 30, 15, 7, 3, 1}));
}

TEST(StepConfirmation, MeasuresAtMostSixSetsOfAnySize) {
  for (int32_t count = 1; count <= 300; ++count) {
    StepConfirmation step(step_choices(count));
    std::size_t before = step.set().size() + 1;
    while (step.state() == StepState::kMeasuring) {
      ASSERT_LT(step.set().size(), before) << count;
      before = step.set().size();
      measure(step, 101, 6);
    }
    EXPECT_LE(step.sets(), 6) << count;
    EXPECT_EQ(step.dropped().size(), static_cast<std::size_t>(count));
    // Up to six choices are given up one at a time.
    if (count <= 6) {
      EXPECT_EQ(step.sets(), count);
    }
  }
}

TEST(StepConfirmation, CancelsAClockThatDriftsEvenly) {
  StepConfirmation step(step_choices(1));
  for (int32_t round = 0; round < 6; ++round)
    ASSERT_TRUE(succeeded(step.add({.default_first_us = 100,
                                    .tuned_first_us = 98 * 1.1,
                                    .tuned_last_us = 98 * 1.21,
                                    .default_last_us = 100 * 1.331})));
  EXPECT_EQ(step.state(), StepState::kConfirmed);
  EXPECT_NEAR(step.figure().ratio.median, 0.98, 1e-12);
}

TEST(StepConfirmation, TellsMediansOfAllBlocksOfTheSet) {
  StepConfirmation step(step_choices(2));
  measure(step, 101, 6);
  for (int32_t round = 0; round < 6; ++round)
    ASSERT_TRUE(succeeded(step.add({.default_first_us = 100,
                                    .tuned_first_us = 90,
                                    .tuned_last_us = 92,
                                    .default_last_us = 104})));
  const StepFigure figure = step.figure();
  EXPECT_EQ(figure.rounds, 6);
  EXPECT_EQ(figure.microseconds, 91);
  EXPECT_EQ(figure.default_microseconds, 102);
  EXPECT_LT(figure.ratio.high, 0.9);
}

TEST(StepConfirmation, RefusesWhatIsNoTime) {
  StepConfirmation step(step_choices(1));
  for (const double us :
       {0.0, -1.0, 1e-7, 1e12, 1e300, std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    for (double StepTimes::*const time : {&StepTimes::default_first_us, &StepTimes::tuned_first_us,
                                          &StepTimes::tuned_last_us, &StepTimes::default_last_us}) {
      StepTimes times = step_times(98);
      times.*time = us;
      const auto added = step.add(times);
      ASSERT_FALSE(added) << us;
      EXPECT_EQ(added.error().code, ErrorCode::kInvalidValue);
    }
  EXPECT_EQ(step.figure().rounds, 0);
}

TEST(StepConfirmation, TakesTimesOfAnyLegalLength) {
  StepConfirmation step(step_choices(1));
  for (int32_t round = 0; round < 6; ++round)
    ASSERT_TRUE(succeeded(step.add({.default_first_us = kLongestUs,
                                    .tuned_first_us = kShortestUs,
                                    .tuned_last_us = kShortestUs,
                                    .default_last_us = kLongestUs})));
  EXPECT_EQ(step.state(), StepState::kConfirmed);
  EXPECT_GT(step.figure().ratio.median, 0.0);
}

TEST(StepConfirmation, WantsNoRoundOnceItHasDecided) {
  StepConfirmation step(step_choices(1));
  measure(step, 98, 6);
  EXPECT_FALSE(step.add(step_times(150)));
  EXPECT_EQ(step.figure().rounds, 6);
}

TEST(StepConfirmation, NamesASetByItsProblemsChoicesAndTexts) {
  const std::vector<StepChoice> choices = step_choices(2);
  const std::string digest = StepConfirmation(choices).set_digest();
  EXPECT_EQ(digest.size(), 32U);
  std::vector<StepChoice> turned = choices;
  std::swap(turned[0].certainty, turned[1].certainty);
  EXPECT_EQ(StepConfirmation(turned).set_digest(), digest);
  std::vector<StepChoice> other = choices;
  other[1].problem = "q";
  EXPECT_NE(StepConfirmation(other).set_digest(), digest);
  other = choices;
  other[1].choices = {{"stages", 5}};
  EXPECT_NE(StepConfirmation(other).set_digest(), digest);
  other = choices;
  other[1].text_digest = "e";
  EXPECT_NE(StepConfirmation(other).set_digest(), digest);
  StepConfirmation smaller(choices);
  measure(smaller, 101, 6);
  EXPECT_NE(smaller.set_digest(), digest);
}

TEST(StepConfirmation, FollowsItsRules) {
  const StepRules rules{.least_rounds = 8, .most_rounds = 9, .most_sets = 2};
  StepConfirmation step(step_choices(8), rules);
  measure(step, 98, 7);
  EXPECT_EQ(step.state(), StepState::kMeasuring);
  measure(step, 98, 1);
  EXPECT_EQ(step.state(), StepState::kConfirmed);
  StepConfirmation slower(step_choices(8), rules);
  measure(slower, 101, 16);
  EXPECT_EQ(slower.state(), StepState::kUsual);
  EXPECT_EQ(slower.sets(), 2);
}

// Looking after every round from the 6th to the 16th gives 4.1 % by enumeration. The seed is fixed.
TEST(StepConfirmation, ConfirmsASetThatGainsNothingInFourPercentOfAllCases) {
  std::mt19937_64 random(11);
  int32_t confirmed = 0;
  for (int32_t i = 0; i < 10000; ++i) {
    StepConfirmation step(step_choices(1));
    while (step.state() == StepState::kMeasuring) measure(step, random() % 2 == 0 ? 99 : 101, 1);
    confirmed += step.state() == StepState::kConfirmed ? 1 : 0;
  }
  EXPECT_GT(confirmed, 350);
  EXPECT_LT(confirmed, 470);
}

}  // namespace
}  // namespace moejit::tune
