// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/tune/race_rounds.h"

#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <vector>

namespace moejit::tune {
namespace {

using testing::succeeded;
using Candidates = std::vector<int32_t>;

TEST(RaceFaults, DisqualifyBeforeTheRace) {
  Race race(3);
  ASSERT_TRUE(succeeded(race.disqualify(1, Fault::kSpills)));
  EXPECT_EQ(race.racing(), Candidates{2});
  race_on(race, {50, 90}, 16);
  EXPECT_EQ(race.outcome().winner, 2);
  EXPECT_EQ(race.outcome().standings[1].fault, Fault::kSpills);
}

TEST(RaceFaults, DisqualifyTheBestDuringTheRace) {
  Race race(3);
  race_on(race, {90, 91}, 5);
  ASSERT_TRUE(succeeded(race.disqualify(1, Fault::kCrashes)));
  race_on(race, {90, 91}, 16);
  EXPECT_EQ(race.outcome().winner, 2);
}

TEST(RaceFaults, BringBackWhatTheBestOneHadDropped) {
  Race race(3);
  race_on(race, {70, 90}, 16);
  EXPECT_EQ(race.outcome().standings[2].dropped_after, 2);
  EXPECT_EQ(race.outcome().winner, 1);
  ASSERT_TRUE(succeeded(race.disqualify(1, Fault::kChangesBits)));
  EXPECT_EQ(race.racing(), Candidates{2});
  race_on(race, {70, 90}, 16);
  // It had 2 rounds of the first 6. After 8, a look, it has 4; the next look is after 12.
  EXPECT_EQ(race.outcome().standings[2].rounds, 8);
  EXPECT_EQ(race.outcome().winner, 2);
}

TEST(RaceFaults, LeaveTheDefaultIfAllAreDisqualified) {
  Race race(3);
  race_on(race, {90, 91}, 3);
  for (const int32_t candidate : {1, 2})
    ASSERT_TRUE(succeeded(race.disqualify(candidate, Fault::kHangs)));
  EXPECT_TRUE(race.outcome().is_settled);
  EXPECT_EQ(race.outcome().winner, 0);
}

TEST(RaceFaults, KeepTheFirstFault) {
  Race race(2);
  ASSERT_TRUE(succeeded(race.disqualify(1, Fault::kNotFinite)));
  ASSERT_TRUE(succeeded(race.disqualify(1, Fault::kHangs)));
  EXPECT_EQ(race.outcome().standings[1].fault, Fault::kNotFinite);
}

TEST(RaceFaults, NeverDisqualifyTheDefault) {
  Race race(2);
  for (const int32_t candidate : {-1, 0, 2}) {
    const auto refused = race.disqualify(candidate, Fault::kSpills);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message, "cannot disqualify candidate " + std::to_string(candidate) +
                                           " (spills): wanted 1 to 1");
  }
}

TEST(RaceFaults, HaveNamesThatAreReadBack) {
  for (int32_t i = 0; i <= static_cast<int32_t>(Fault::kChangesBits); ++i)
    EXPECT_EQ(fault_named(to_string(static_cast<Fault>(i))), static_cast<Fault>(i));
  EXPECT_EQ(to_string(Fault::kDoesNotCompile), "does_not_compile");
  EXPECT_EQ(fault_named("unknown"), std::nullopt);
}

}  // namespace
}  // namespace moejit::tune
