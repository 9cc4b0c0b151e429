// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/decision/replay.h"
#include "tests/unit/tune/recorded_scatter.h"

#include <gtest/gtest.h>
#include <ostream>
#include <string>
#include <vector>

namespace moejit::tune {
namespace {

struct Decision {
  std::string problem;
  int32_t winner = 0;
  bool is_settled = false;
  int32_t rounds = 0;

  bool operator==(const Decision&) const = default;
};

void PrintTo(const Decision& decision, std::ostream* out) {
  *out << decision.problem << ": " << decision.winner << (decision.is_settled ? "" : "?") << ", "
       << decision.rounds;
}

// Each race has 16 rounds or fewer, after which earlier rules ended it. At the power limit that is
// too few to decide by: who leads there may still lose, since the races are not settled. (Their
// candidates were timed at random places between the default's two, so some of what they gain may
// be the gain of their places.)
TEST(RecordedSweep, NamesWinnersWhereRoundsAreEnough) {
  const Journal journal = recorded_sweep();
  const auto races = replay(journal);
  ASSERT_TRUE(testing::succeeded(races));
  std::vector<Decision> found;
  for (const ReplayedRace& race : *races) {
    const Outcome outcome = race.race.outcome();
    found.push_back({.problem = race.problem,
                     .winner = outcome.winner,
                     .is_settled = outcome.is_settled,
                     .rounds = outcome.standings.front().rounds});
    EXPECT_EQ(outcome.zone, 0.01) << race.problem;  // no place ratio is certainly not 1
  }
  const std::vector<Decision> wanted = {
      {"1", 0, false, 16},  {"2", 0, false, 16},   {"3", 0, false, 16},  {"4", 0, false, 16},
      {"5", 0, false, 16},  {"6", 0, false, 16},   {"7", 0, false, 16},  {"8", 0, false, 16},
      {"10", 10, true, 12}, {"11", 7, true, 16},   {"12", 0, false, 16}, {"13", 0, false, 16},
      {"15", 0, false, 16}, {"16", 11, false, 16}, {"17", 0, false, 16}, {"18", 13, false, 16},
      {"19", 5, true, 12},  {"20", 0, false, 8}};
  EXPECT_EQ(found, wanted);
}

}  // namespace
}  // namespace moejit::tune
