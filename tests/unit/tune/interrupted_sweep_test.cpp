// SPDX-License-Identifier: Apache-2.0
// Sweeps that end anywhere: their journals are cut at random bytes, or their disk is full after so
// many. Times are those of a script, so that each sweep that goes on must find what a whole one
// does.
#include "compiler/support/file.h"
#include "runtime/tune/decision/replay.h"
#include "runtime/tune/decision/tuned_records.h"
#include "runtime/tune/race_kernel.h"
#include "tests/support/full_disk.h"
#include "tests/support/matchers.h"
#include "tests/unit/tune/journal_sample.h"
#include "tests/unit/tune/scripted_measurer.h"

#include <algorithm>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

namespace moejit::tune {
namespace {

using testing::FullDisk;
using testing::ScriptedMeasurer;
using testing::succeeded;
using testing::TestDir;

constexpr int kCuts = 200;
constexpr int32_t kCandidates = 4, kWinner = 2;

// Returns how many rounds of a problem a journal has to their last block, by its text alone.
int64_t whole_rounds(std::string_view journal, std::string_view problem) {
  int64_t rounds = 0;
  while (!journal.empty()) {
    const std::string_view line = journal.substr(0, journal.find('\n'));
    journal.remove_prefix(std::min(journal.size(), line.size() + 1));
    const auto has = [&](const std::string& text) { return line.find(text) != line.npos; };
    if (line.ends_with('}') && has("\"place\":\"default_last\"") &&
        has(fmt::format("\"problem\":\"{}\"", problem)))
      ++rounds;
  }
  return rounds;
}

class InterruptedSweep : public ::testing::Test {
 protected:
  InterruptedSweep() {
    for (const char* name : {"one", "other"}) {
      problems_.emplace_back().name = name;
      for (int32_t i = 0; i < kCandidates; ++i)
        problems_.back().candidates.push_back({{"stages", i + 3}});
    }
  }

  // Runs a sweep of all problems that goes on from the journal.
  Result<void> sweep() {
    ScriptedMeasurer measurer;
    measurer.ratios = {{1, 1.2}, {kWinner, 0.9}};
    MOEJIT_TRY_ASSIGN(JournalWriter journal,
                      JournalWriter::open(path_, {.id = fmt::format("s{}", ++sessions_),
                                                  .gpu = R"({"name":"A","arch":"sm_90a"})"}));
    Watch watch;
    const RaceSite site{
        .measurer = measurer, .watch = watch, .journal = journal, .stops = [] { return false; }};
    for (std::size_t i = 0; i < problems_.size(); ++i) {
      MOEJIT_TRY(journal.append(problems_[i].name, CandidateList{problems_[i].candidates}));
      MOEJIT_TRY_ASSIGN(Race race, race_of(problems_[i].name));
      MOEJIT_TRY(race_kernel(problems_[i], i, site, race));
    }
    return {};
  }

  // Returns the race of a problem as the journal tells it; a new one if it has no list of it.
  Result<Race> race_of(const std::string& problem) const {
    MOEJIT_TRY_ASSIGN(const Journal journal, read_journal(path_));
    MOEJIT_TRY_ASSIGN(const auto races, replay(journal));
    const auto found = std::ranges::find(races, problem, &ReplayedRace::problem);
    return found == races.end() ? Race(kCandidates) : found->race;
  }

  // Expects the race to have each round that is whole in the journal's text.
  void expect_whole_rounds(const std::string& problem) const {
    const auto race = race_of(problem);
    ASSERT_TRUE(succeeded(race));
    EXPECT_EQ(race->outcome().standings.front().rounds, whole_rounds(text(), problem)) << problem;
  }

  std::string text() const { return read_text_file(path_).value_or("no file"); }

  // Expects each whole round of the journal in its races, goes on with the sweep, and expects what
  // a sweep finds that nobody interrupts, without a round more.
  void expect_to_go_on() {
    const std::string before = text();
    for (const TuneProblem& problem : problems_) expect_whole_rounds(problem.name);
    ASSERT_TRUE(succeeded(sweep()));
    EXPECT_TRUE(text().starts_with(before));
    for (const TuneProblem& problem : problems_) {
      expect_whole_rounds(problem.name);
      const auto race = race_of(problem.name);
      ASSERT_TRUE(succeeded(race));
      const Outcome outcome = race->outcome();
      EXPECT_TRUE(outcome.is_settled);
      EXPECT_EQ(outcome.winner, kWinner);
      EXPECT_EQ(outcome.standings.front().rounds, kFewestForInterval);
    }
    const auto journal = read_journal(path_);
    ASSERT_TRUE(succeeded(journal));
    const auto records = tuned_records(*journal);
    ASSERT_TRUE(succeeded(records));
    ASSERT_EQ(records->size(), 1U);
    EXPECT_EQ(records->front().entries.size(), problems_.size());
  }

  TestDir folder_;
  std::string path_ = (folder_ / "journal").string();
  std::vector<TuneProblem> problems_;
  int32_t sessions_ = 0;
};

TEST_F(InterruptedSweep, GoesOnWhereverItsJournalIsCut) {
  ASSERT_TRUE(succeeded(sweep()));
  const std::string whole = text();
  std::mt19937_64 random(5);
  for (int i = 0; i < kCuts && !HasFailure(); ++i) {
    const std::size_t bytes = random() % (whole.size() + 1);
    SCOPED_TRACE(fmt::format("after {} of {} bytes", bytes, whole.size()));
    write_fast(path_, whole.substr(0, bytes));
    expect_to_go_on();
  }
}

TEST_F(InterruptedSweep, GoesOnAfterBeingKilledAgainAndAgain) {
  std::mt19937_64 random(6);
  ASSERT_TRUE(succeeded(sweep()));
  const std::size_t whole = text().size();
  std::size_t kept = 0;
  for (int i = 0; i < 20; ++i) {
    const std::string now = text();
    kept = std::min(now.size(), kept + random() % (whole / 20));
    write_fast(path_, now.substr(0, kept));
    ASSERT_TRUE(succeeded(sweep())) << "the " << i << "th time";
  }
  expect_to_go_on();
}

TEST_F(InterruptedSweep, TellsAFullDiskAndGoesOnOnceThereIsRoom) {
  ASSERT_TRUE(succeeded(sweep()));
  const std::size_t whole = text().size();
  std::mt19937_64 random(7);
  for (int i = 0; i < 20 && !HasFailure(); ++i) {
    const std::size_t bytes = 1 + random() % (whole - 1);
    SCOPED_TRACE(fmt::format("a disk of {} bytes", bytes));
    std::filesystem::remove(path_);
    {
      const FullDisk disk(bytes);
      const Result<void> swept = sweep();
      ASSERT_FALSE(swept);
      EXPECT_EQ(swept.error().code, ErrorCode::kFileWrite);
      EXPECT_EQ(swept.error().message, fmt::format("cannot write {}: File too large", path_));
    }
    EXPECT_EQ(text().size(), bytes);
    expect_to_go_on();
  }
}

}  // namespace
}  // namespace moejit::tune
