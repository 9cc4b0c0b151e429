// SPDX-License-Identifier: Apache-2.0
// Races over a measurer whose candidates misbehave as they are told: they end or hang a process.
#include "runtime/tune/race_kernel.h"

#include "runtime/tune/decision/replay.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/tune/scripted_measurer.h"

#include <algorithm>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <set>
#include <vector>

namespace moejit::tune {
namespace {

using testing::Behavior;
using testing::ScriptedMeasurer;

class RaceKernel : public ::testing::Test {
 protected:
  static constexpr int32_t kCandidates = 5;

  RaceKernel() {
    problem_.name = "a problem";
    for (int32_t i = 0; i < kCandidates; ++i) problem_.candidates.push_back({{"stages", i + 3}});
  }

  // Runs a sweep of this one problem that goes on from the journal, in processes of their own.
  Result<void> run() {
    Watch watch;
    TuneObserver observer;
    const Result<void> raced = run_watched(
        watch, [&](std::span<const Loss> losses) { return run_here(watch, losses); }, observer);
    race_ = replayed();
    return raced;
  }

  // Runs it in this process.
  Result<void> run_here(Watch& watch, std::span<const Loss> losses = {}) {
    auto journal = JournalWriter::open(path_, {.id = fmt::format("s{}", sessions())});
    EXPECT_TRUE(journal) << journal.error().message;
    EXPECT_TRUE(journal->append(problem_.name, CandidateList{problem_.candidates}));
    race_ = replayed();
    Result<void> raced = race_kernel(problem_, 0,
                                     {.measurer = measurer_,
                                      .watch = watch,
                                      .journal = *journal,
                                      .times = times_,
                                      .stops = stops_,
                                      .losses = losses},
                                     race_);
    if (!raced && !measurer_.is_usable()) watch.lose(raced.error().message);
    return raced;
  }

  // Returns how many processes have written to the journal.
  std::size_t sessions() const {
    const auto journal = read_journal(path_);
    return journal ? journal->sessions.size() : 0;
  }

  // A version then counts as hanging after a second.
  void expect_hangs() {
    times_ = {.block_seconds = 1e-4, .lead_seconds = 0.0, .candidate_seconds = 1.0};
  }

  Race replayed() const {
    const auto journal = read_journal(path_);
    EXPECT_TRUE(journal) << journal.error().message;
    const auto races = replay(*journal);
    EXPECT_TRUE(races) << races.error().message;
    return races->front().race;
  }

  std::optional<Fault> fault_of(std::size_t candidate) const {
    return race_.outcome().standings[candidate].fault;
  }

  testing::TempDir folder_;
  std::string path_ = (folder_.path() / "journal").string();
  TuneProblem problem_;
  ScriptedMeasurer measurer_;
  RaceTimes times_;
  Race race_{kCandidates};
  std::function<bool()> stops_ = [] { return false; };
};

TEST_F(RaceKernel, RacesGoodVersionsInOneProcess) {
  measurer_.ratios = {{3, 0.9}};
  ASSERT_TRUE(run());
  EXPECT_TRUE(race_.outcome().is_settled);
  EXPECT_EQ(race_.outcome().winner, 3);
  EXPECT_EQ(sessions(), 1U);
}

TEST_F(RaceKernel, IsDecidedAlikeByItsJournal) {
  measurer_.ratios = {{3, 0.9}};
  Watch watch;
  ASSERT_TRUE(run_here(watch));
  EXPECT_EQ(replayed().outcome(), race_.outcome());
}

// A block is 150 launches of 100 us, so that a lead has 14 blocks, and a round of 4 candidates and
// 2 + 2 usual blocks takes 0.12 s, of which 7 fill a call of 0.8 s.
TEST_F(RaceKernel, TimesALeadThatDoesNotCountAndThenRoundsUpToTheNextLook) {
  measurer_.ratios = {{3, 0.9}, {4, 0.9}};
  Watch watch;
  ASSERT_TRUE(run_here(watch));
  std::vector<std::size_t> rounds;
  for (const std::vector<int32_t>& call : measurer_.calls) {
    EXPECT_EQ(std::vector<int32_t>(call.begin(), call.begin() + 14), std::vector<int32_t>(14, 0));
    rounds.push_back(static_cast<std::size_t>(std::ranges::count(call, 3)));
  }
  EXPECT_EQ(rounds, (std::vector<std::size_t>{2, 1, 1, 2}));  // looks are after 2, 3, 4 and 6
  EXPECT_EQ(measurer_.calls.front().size(), 14U + 2 * (4 + 4));
  EXPECT_EQ(measurer_.calls.back().size(), 14U + 2 * (2 + 4));  // 1 and 2 are far behind
  const auto journal = read_journal(path_);
  ASSERT_TRUE(journal);
  EXPECT_EQ(journal->entries.size(), 1U + 2 * (4 + 4) + 4 * (2 + 4));  // and the list
}

TEST_F(RaceKernel, TimesTheUsualVersionAtRandomPlaces) {
  measurer_.ratios = {{1, 0.99}, {2, 0.99}, {3, 0.99}, {4, 0.99}};
  Watch watch;
  ASSERT_TRUE(run_here(watch));
  std::set<std::ptrdiff_t> places;
  for (const std::vector<int32_t>& call : measurer_.calls) {
    const auto first = call.begin() + 15;  // behind the lead and the round's first block
    places.insert(std::find(first, call.end(), 0) - first);
  }
  EXPECT_GT(places.size(), 1U);
}

struct BadCandidate {
  const char* name;
  Behavior behavior;
  Fault fault;
  std::size_t processes;
};

class RaceWithABadCandidate : public RaceKernel,
                              public ::testing::WithParamInterface<BadCandidate> {};

TEST_P(RaceWithABadCandidate, CostsThatCandidateAlone) {
  measurer_.ratios = {{2, 0.5}, {3, 0.9}};
  measurer_.behaviors = {{2, GetParam().behavior}};
  if (GetParam().fault == Fault::kHangs) expect_hangs();
  const Result<void> raced = run();
  ASSERT_TRUE(raced) << raced.error().message;
  EXPECT_EQ(fault_of(2), GetParam().fault);
  for (const std::size_t other : {0, 1, 3, 4}) EXPECT_EQ(fault_of(other), std::nullopt) << other;
  EXPECT_TRUE(race_.outcome().is_settled);
  EXPECT_EQ(race_.outcome().winner, 3);
  EXPECT_EQ(sessions(), GetParam().processes);
  // The next session meets it no more.
  measurer_.counts.made[2] = 0;
  ASSERT_TRUE(run());
  EXPECT_EQ(measurer_.counts.made[2], 0);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, RaceWithABadCandidate,
    ::testing::Values(
        BadCandidate{"DoesNotCompile", Behavior::kDoesNotCompile, Fault::kDoesNotCompile, 1},
        BadCandidate{"DoesNotLaunch", Behavior::kDoesNotLaunch, Fault::kDoesNotLaunch, 1},
        BadCandidate{"ChangesBits", Behavior::kChangesBits, Fault::kChangesBits, 1},
        BadCandidate{"Crashes", Behavior::kCrashes, Fault::kCrashes, 3},
        BadCandidate{"EndsTheContext", Behavior::kEndsTheContext, Fault::kCrashes, 3},
        BadCandidate{"Hangs", Behavior::kHangs, Fault::kHangs, 2},
        BadCandidate{"CrashesInRounds", Behavior::kCrashesInRounds, Fault::kCrashes, 3},
        BadCandidate{"HangsInRounds", Behavior::kHangsInRounds, Fault::kHangs, 3},
        BadCandidate{"FailsInRounds", Behavior::kFailsInRounds, Fault::kDoesNotLaunch, 1}),
    [](const auto& bad) { return std::string(bad.param.name); });

TEST_F(RaceKernel, MakesAVersionAgainThatCrashedOnce) {
  measurer_.ratios = {{2, 0.5}};
  measurer_.behaviors = {{2, Behavior::kCrashesOnce}};
  ASSERT_TRUE(run());
  EXPECT_EQ(fault_of(2), std::nullopt);
  EXPECT_EQ(race_.outcome().winner, 2);
}

TEST_F(RaceKernel, MakesVersionsThatRaceAgainWhenAFasterOneIsOut) {
  measurer_.ratios = {{2, 0.5}, {3, 0.9}};
  int32_t asked = 0;
  stops_ = [&] { return ++asked > 9; };  // after a few rounds, which 2 wins by far
  Watch watch;
  ASSERT_TRUE(run_here(watch));
  ASSERT_GT(race_.outcome().standings[3].dropped_after, 0);
  // In the next session 2 fails, which brings the others back.
  stops_ = [] { return false; };
  expect_hangs();
  measurer_.behaviors = {{2, Behavior::kHangs}};
  ASSERT_TRUE(run());
  EXPECT_EQ(fault_of(2), Fault::kHangs);
  EXPECT_EQ(race_.outcome().winner, 3);
}

TEST_F(RaceKernel, GivesUpRoundsThatFailForNoVersionsSake) {
  measurer_.behaviors = {{2, Behavior::kFailsInCompany}};
  EXPECT_FALSE(run());
  for (std::size_t i = 0; i < kCandidates; ++i) EXPECT_EQ(fault_of(i), std::nullopt) << i;
}

TEST_F(RaceKernel, TellsAUsualVersionThatFails) {
  measurer_.has_open_fault = true;
  const Result<void> raced = run();
  ASSERT_FALSE(raced);
  EXPECT_EQ(raced.error().code, ErrorCode::kTensorMismatch);
}

TEST_F(RaceKernel, GivesAUsualVersionThatCrashesASecondTry) {
  measurer_.ratios = {{3, 0.9}};
  measurer_.counts.crashes_to_come = 1;
  ASSERT_TRUE(run());
  EXPECT_EQ(race_.outcome().winner, 3);
  EXPECT_EQ(sessions(), 2U);
}

TEST_F(RaceKernel, TellsAUsualVersionThatCrashesAgain) {
  measurer_.counts.crashes_to_come = 2;
  EXPECT_FALSE(run());
}

TEST_F(RaceKernel, OpensNothingForARaceThatIsSettled) {
  measurer_.ratios = {{3, 0.9}};
  ASSERT_TRUE(run());
  measurer_.has_open_fault = true;
  EXPECT_TRUE(run());
  EXPECT_EQ(measurer_.counts.opened, 1);
}

}  // namespace
}  // namespace moejit::tune
