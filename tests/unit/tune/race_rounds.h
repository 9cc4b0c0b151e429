// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/tune/decision/race.h"
#include "tests/support/matchers.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <vector>

// Rounds for the tests of races.
namespace moejit::tune {

// Returns a round in which the default takes 100 us, and each racing candidate that many percent of
// it; percents[0] belongs to candidate 1.
inline Round round_of(const Race& race, const std::vector<double>& percents) {
  Round round{.default_first_us = 100, .default_last_us = 100};
  for (const int32_t candidate : race.racing())
    round.candidates_us[candidate] = percents[static_cast<std::size_t>(candidate - 1)];
  return round;
}

// Adds so many equal rounds, or fewer if the race ends.
inline void race_on(Race& race, const std::vector<double>& percents, int32_t rounds) {
  for (int32_t i = 0; i < rounds && !race.racing().empty(); ++i)
    ASSERT_TRUE(testing::succeeded(race.add(round_of(race, percents))));
}

}  // namespace moejit::tune
