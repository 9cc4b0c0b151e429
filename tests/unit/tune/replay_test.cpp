// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/decision/replay.h"

#include "tests/unit/tune/journal_sample.h"

#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

namespace moejit::tune {
namespace {

using compiler::Choices;
using testing::succeeded;
using testing::TestDir;

Block block(int32_t round, Place place, const Choices& choices, double us) {
  return {.round = round,
          .place = place,
          .choices = choices,
          .microseconds = us,
          .megahertz = {},
          .watts = {}};
}

// Collects the entries of a journal.
struct Sheet {
  Journal journal{.sessions = {kSession}, .entries = {}, .torn_lines = 0};
  std::size_t session = 0;
  std::string problem = "fc1";

  void add(const Event& event) { journal.entries.push_back({session, problem, event}); }
  // Adds a round in which the default takes 100 us.
  void add_round(int32_t round, const std::map<Choices, double>& times) {
    add(block(round, Place::kDefaultFirst, kDefault, 100));
    for (const auto& [choices, us] : times) add(block(round, Place::kCandidate, choices, us));
    add(block(round, Place::kDefaultLast, kDefault, 100));
  }
};

// Returns the outcome of the only race of the sheet.
Outcome outcome_of(const Sheet& sheet) {
  const auto races = replay(sheet.journal);
  EXPECT_TRUE(succeeded(races));
  if (!races || races->size() != 1) return {};
  return races->front().race.outcome();
}

TEST(Replay, DecidesAsTheLiveRaceDid) {
  const TestDir folder;
  const std::string path = folder / "journal.jsonl";
  Race live(3);
  {
    auto writer = JournalWriter::open(path, kSession);
    ASSERT_TRUE(succeeded(writer));
    const auto log = [&](const Event& event) {
      ASSERT_TRUE(succeeded(writer->append("fc1", event)));
    };
    log(kList);
    for (int32_t number = 1; !live.racing().empty(); ++number) {
      // Times with many digits, which a text of fewer would not give back.
      Round round{.default_first_us = 100 + 3 * std::sin(number), .default_last_us = 100 + 1.0 / 3};
      log(block(number, Place::kDefaultFirst, kDefault, round.default_first_us));
      for (const int32_t candidate : live.racing()) {
        const double us = 96 + 3 * std::cos(7 * number + candidate);
        round.candidates_us[candidate] = us;
        log(block(number, Place::kCandidate, kList.candidates[static_cast<std::size_t>(candidate)],
                  us));
      }
      if (number == 9) {
        ASSERT_TRUE(succeeded(live.disqualify(2, Fault::kHangs)));
        log(FoundFault{kDeeper, Fault::kHangs, ""});
        round.candidates_us.erase(2);
      }
      log(block(number, Place::kDefaultLast, kDefault, round.default_last_us));
      ASSERT_TRUE(succeeded(live.add(round)));
    }
  }
  const auto journal = read_journal(path);
  ASSERT_TRUE(succeeded(journal));
  const auto races = replay(*journal);
  ASSERT_TRUE(succeeded(races));
  ASSERT_EQ(races->size(), 1U);
  EXPECT_GT(live.outcome().standings[1].rounds, 9);
  EXPECT_EQ(races->front().race.outcome(), live.outcome());
  EXPECT_EQ(races->front().problem, "fc1");
  EXPECT_EQ(races->front().gpu, kSession.gpu);
}

TEST(Replay, DividesByTheDefaultsTimesBetweenFirstAndLast) {
  Sheet sheet;
  sheet.add(kList);
  sheet.add(block(1, Place::kDefaultFirst, kDefault, 70));
  sheet.add(block(1, Place::kCandidate, kDefault, 80));
  sheet.add(block(1, Place::kCandidate, kWider, 90));
  sheet.add(block(1, Place::kCandidate, kDefault, 125));
  sheet.add(block(1, Place::kDefaultLast, kDefault, 70));
  EXPECT_DOUBLE_EQ(outcome_of(sheet).standings[1].median_ratio, 0.9);  // sqrt(80 * 125) = 100
}

TEST(Replay, NamesTheWinnerByItsChoices) {
  Sheet sheet;
  sheet.add(kList);
  for (int32_t round = 1; round <= 6; ++round)
    sheet.add_round(round, {{kWider, 95}, {kDeeper, 90}});
  const auto races = replay(sheet.journal);
  ASSERT_TRUE(succeeded(races));
  EXPECT_EQ(races->front().winner(), kDeeper);
  EXPECT_TRUE(races->front().race.outcome().is_settled);
}

TEST(Replay, IgnoresRoundsBehindTheEndOfTheRace) {
  Sheet sheet;
  sheet.add(kList);
  for (int32_t round = 1; round <= 6; ++round) sheet.add_round(round, {{kWider, 90}});
  sheet.add(FoundFault{kDeeper, Fault::kSpills, ""});
  const Outcome settled = outcome_of(sheet);
  EXPECT_TRUE(settled.is_settled);
  for (int32_t round = 7; round <= 9; ++round) sheet.add_round(round, {{kWider, 200}});
  EXPECT_EQ(outcome_of(sheet), settled);
}

TEST(Replay, IsUnsettledIfRoundsAreMissing) {
  Sheet sheet;
  sheet.add(kList);
  for (int32_t round = 1; round <= 5; ++round)
    sheet.add_round(round, {{kWider, 90}, {kDeeper, 95}});
  EXPECT_FALSE(outcome_of(sheet).is_settled);
  EXPECT_EQ(outcome_of(sheet).winner, 0);
}

TEST(Replay, IgnoresRoundsThatWereBrokenOff) {
  Sheet sheet;
  sheet.add(kList);
  sheet.add(block(1, Place::kDefaultFirst, kDefault, 100));
  sheet.add(block(1, Place::kCandidate, kWider, 10));
  sheet.journal.sessions.push_back({.id = "b", .gpu = kSession.gpu});
  sheet.session = 1;
  // The end of the round by another session does not make it whole.
  sheet.add(block(1, Place::kDefaultLast, kDefault, 100));
  sheet.add_round(1, {{kWider, 90}});
  const Outcome outcome = outcome_of(sheet);
  EXPECT_EQ(outcome.standings[1].rounds, 1);
  EXPECT_DOUBLE_EQ(outcome.standings[1].median_ratio, 0.9);
}

TEST(Replay, UnitesTheRoundsOfSessionsOnOneGpu) {
  Sheet sheet;
  sheet.add(kList);
  for (int32_t round = 1; round <= 3; ++round)
    sheet.add_round(round, {{kWider, 90}, {kDeeper, 95}});
  sheet.journal.sessions.push_back({.id = "b", .gpu = kSession.gpu});
  sheet.session = 1;
  sheet.add(kList);
  for (int32_t round = 1; round <= 3; ++round)
    sheet.add_round(round, {{kWider, 90}, {kDeeper, 95}});
  EXPECT_EQ(outcome_of(sheet).standings[1].rounds, 6);
  EXPECT_EQ(outcome_of(sheet).winner, 1);
}

TEST(Replay, KeepsGpusApart) {
  Sheet sheet;
  sheet.add(kList);
  sheet.add_round(1, {{kWider, 90}});
  sheet.journal.sessions.push_back({.id = "b", .gpu = R"({"sms":78})"});
  sheet.session = 1;
  sheet.add(kList);
  sheet.add_round(1, {{kWider, 80}});
  const auto races = replay(sheet.journal);
  ASSERT_TRUE(succeeded(races));
  ASSERT_EQ(races->size(), 2U);
  EXPECT_EQ((*races)[0].race.outcome().standings[1].median_ratio, 0.9);
  EXPECT_EQ((*races)[1].race.outcome().standings[1].median_ratio, 0.8);
}

TEST(Replay, DecidesEachProblemInTheOrderOfTheLists) {
  Sheet sheet;
  for (const char* const problem : {"z", "a", "m"}) {
    sheet.problem = problem;
    sheet.add(kList);
  }
  // Rounds of different problems may alternate block by block.
  for (const Place place : {Place::kDefaultFirst, Place::kCandidate, Place::kDefaultLast}) {
    for (const char* const problem : {"m", "z"}) {
      sheet.problem = problem;
      sheet.add(block(1, place, place == Place::kCandidate ? kWider : kDefault, 100));
    }
  }
  const auto races = replay(sheet.journal);
  ASSERT_TRUE(succeeded(races));
  ASSERT_EQ(races->size(), 3U);
  EXPECT_EQ((*races)[0].problem, "z");
  EXPECT_EQ((*races)[0].race.outcome().standings[1].rounds, 1);
  EXPECT_EQ((*races)[1].problem, "a");
  EXPECT_EQ((*races)[1].race.outcome().standings[1].rounds, 0);
  EXPECT_EQ((*races)[2].problem, "m");
  EXPECT_EQ((*races)[2].race.outcome().standings[1].rounds, 1);
}

TEST(Replay, KeepsTimesWhenTheListChanges) {
  Sheet sheet;
  sheet.add(kList);
  sheet.add_round(1, {{kWider, 90}, {kDeeper, 95}});
  const Choices added{{"stages", 6}};
  sheet.add(CandidateList{{kDefault, added, kDeeper}});
  sheet.add_round(2, {{added, 97}, {kDeeper, 95}});
  const Outcome outcome = outcome_of(sheet);
  ASSERT_EQ(outcome.standings.size(), 3U);
  EXPECT_EQ(outcome.standings[1].rounds, 1);
  EXPECT_EQ(outcome.standings[2].rounds, 2);
}

TEST(Replay, IgnoresTimesBesideAnotherDefault) {
  Sheet sheet;
  sheet.add(kList);
  sheet.add_round(1, {{kWider, 90}});
  sheet.add(FoundFault{kDeeper, Fault::kCrashes, ""});
  sheet.add(CandidateList{{kDeeper, kWider, kDefault}});
  sheet.add(block(2, Place::kDefaultFirst, kDefault, 100));
  sheet.add(block(2, Place::kCandidate, kWider, 90));
  sheet.add(block(2, Place::kDefaultLast, kDeeper, 100));
  sheet.add(block(3, Place::kDefaultFirst, kDeeper, 100));
  sheet.add(block(3, Place::kCandidate, kWider, 90));
  sheet.add(block(3, Place::kDefaultLast, kDefault, 100));
  const Outcome outcome = outcome_of(sheet);
  ASSERT_EQ(outcome.standings.size(), 3U);
  EXPECT_EQ(outcome.standings[1].rounds, 0);
  EXPECT_EQ(outcome.standings[0].fault, std::nullopt);
}

TEST(Replay, AppliesFaultsWhereTheyStand) {
  Sheet sheet;
  sheet.add(kList);
  for (int32_t round = 1; round <= 6; ++round) {
    sheet.add_round(round, {{kWider, 90}, {kDeeper, 90.5}});
    if (round == 3) sheet.add(FoundFault{kWider, Fault::kNotFinite, ""});
  }
  const Outcome outcome = outcome_of(sheet);
  EXPECT_EQ(outcome.standings[1].rounds, 3);
  EXPECT_EQ(outcome.standings[1].fault, Fault::kNotFinite);
  EXPECT_EQ(outcome.winner, 2);
}

TEST(Replay, FollowsTheRules) {
  Sheet sheet;
  sheet.add(kList);
  for (int32_t round = 1; round <= 6; ++round)
    sheet.add_round(round, {{kWider, 90}, {kDeeper, 95}});
  const auto races = replay(sheet.journal, {.indifference = 0.2});
  ASSERT_TRUE(succeeded(races));
  EXPECT_EQ(races->front().winner(), kDefault);
}

TEST(Replay, RefusesAProblemWithoutList) {
  Sheet sheet;
  sheet.add_round(1, {{kWider, 90}});
  const auto races = replay(sheet.journal);
  ASSERT_FALSE(races);
  EXPECT_EQ(races.error().code, ErrorCode::kInvalidValue);
}

}  // namespace
}  // namespace moejit::tune
