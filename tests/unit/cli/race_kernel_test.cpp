// SPDX-License-Identifier: Apache-2.0
// Races over a measurer whose candidates misbehave as they are told, in a process that dies as they
// do. Times are those of a script, so the faults alone decide.
#include "cli/tune/race_kernel.h"

#include "runtime/tune/replay.h"
#include "tests/support/temp_dir.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <map>
#include <set>

namespace moejit::cli {
namespace {

using tune::Fault;

enum class Behavior {
  kGood,
  kDoesNotCompile,
  kDoesNotLaunch,
  kChangesBits,
  kCrashes,          // whenever it is made
  kCrashesOnce,      // when it is first made
  kHangs,            // whenever it is made
  kCrashesInRounds,  // but not when it is made
  kHangsInRounds,    // "
  kFailsInRounds,    // " and the process lives
  kFailsInCompany,   // in rounds of several, never alone
};

constexpr double kUsualUs = 100.0;

class ScriptedMeasurer final : public Measurer {
 public:
  std::map<int32_t, Behavior> behaviors;  // of candidates that are not good
  std::map<int32_t, double> ratios;       // to the usual version's time; default: 1
  bool has_open_fault = false;
  int32_t crashes_to_come = 0;  // of the usual version, when it is heated
  int32_t starts = 0;           // of the process
  std::map<int32_t, int32_t> makes;

  Result<void> prefetch() override { return {}; }
  Result<void> compile(std::size_t) override { return {}; }

  Result<void> open(std::size_t) override {
    loss_.reset();
    if (has_open_fault) return error(ErrorCode::kTensorMismatch);
    if (!is_open_) ++starts;
    is_open_ = true;
    return {};
  }

  Result<int64_t> make(int32_t candidate) override {
    EXPECT_TRUE(is_open_);
    loss_.reset();
    ++makes[candidate];
    switch (behavior_of(candidate)) {
      case Behavior::kDoesNotCompile: return error(ErrorCode::kCompileFailed);
      case Behavior::kDoesNotLaunch: return error(ErrorCode::kDriver);
      case Behavior::kChangesBits: return 7;
      case Behavior::kCrashes: return lose(Fault::kCrashes);
      case Behavior::kHangs: return lose(Fault::kHangs);
      case Behavior::kCrashesOnce:
        if (makes[candidate] == 1) return lose(Fault::kCrashes);
        break;
      default: break;
    }
    made_.insert(candidate);
    return 0;
  }

  Result<double> heat(double, double) override {
    EXPECT_TRUE(is_open_);
    loss_.reset();
    if (crashes_to_come > 0) {
      --crashes_to_come;
      return lose(Fault::kCrashes);
    }
    return kUsualUs;
  }

  Result<TimedBlocks> time(std::span<const int32_t> candidates, int64_t) override {
    EXPECT_TRUE(is_open_);
    loss_.reset();
    TimedBlocks timed;
    for (const int32_t candidate : candidates) {
      EXPECT_TRUE(candidate == 0 || made_.contains(candidate)) << candidate << " was not made";
      switch (behavior_of(candidate)) {
        case Behavior::kCrashesInRounds: return lose(Fault::kCrashes);
        case Behavior::kHangsInRounds: return lose(Fault::kHangs);
        case Behavior::kFailsInRounds: return error(ErrorCode::kDriver);
        case Behavior::kFailsInCompany:
          if (candidates.size() > 1) return lose(Fault::kCrashes);
          break;
        default: break;
      }
      const auto ratio = ratios.find(candidate);
      // Blocks differ a little, as those of a GPU do.
      const double wobble = 1.0 + 1e-4 * static_cast<double>(++blocks_ % 7);
      timed.microseconds.push_back(kUsualUs * wobble *
                                   (ratio == ratios.end() ? 1.0 : ratio->second));
    }
    return timed;
  }

  Result<void> open_step(std::size_t) override { return error(ErrorCode::kUnsupported); }
  Result<TimedBlocks> time_step(std::span<const tune::StepChoice>, int64_t) override {
    return error(ErrorCode::kUnsupported);
  }

  std::optional<Fault> loss() const override { return loss_; }
  bool is_usable() const override { return true; }

 private:
  Behavior behavior_of(int32_t candidate) const {
    const auto found = behaviors.find(candidate);
    return found == behaviors.end() ? Behavior::kGood : found->second;
  }
  static tl::unexpected<Error> error(ErrorCode code) {
    return fail(Stage::kLaunch, code, "as told");
  }
  tl::unexpected<Error> lose(Fault fault) {
    loss_ = fault;
    is_open_ = false;
    made_.clear();
    return error(ErrorCode::kDriver);
  }

  bool is_open_ = false;
  std::set<int32_t> made_;
  std::optional<Fault> loss_;
  int32_t blocks_ = 0;
};

class RaceKernel : public ::testing::Test {
 protected:
  static constexpr int32_t kCandidates = 5;

  RaceKernel() {
    problem_.name = "a problem";
    for (int32_t i = 0; i < kCandidates; ++i) problem_.candidates.push_back({{"stages", i + 3}});
  }

  // Runs a sweep of this one problem that goes on from the journal.
  Result<void> run() {
    auto journal = tune::JournalWriter::open(path_, {.id = fmt::format("s{}", ++sessions_)});
    EXPECT_TRUE(journal) << journal.error().message;
    EXPECT_TRUE(journal->append(problem_.name, tune::CandidateList{problem_.candidates}));
    race_ = replayed();
    return race_kernel(problem_, 0,
                       {.measurer = measurer_, .journal = *journal, .times = {}, .stops = stops_},
                       race_);
  }

  tune::Race replayed() const {
    const auto journal = tune::read_journal(path_);
    EXPECT_TRUE(journal) << journal.error().message;
    const auto races = tune::replay(*journal);
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
  tune::Race race_{kCandidates};
  std::function<bool()> stops_ = [] { return false; };
  int32_t sessions_ = 0;
};

TEST_F(RaceKernel, RacesGoodVersionsInOneProcess) {
  measurer_.ratios = {{3, 0.9}};
  ASSERT_TRUE(run());
  EXPECT_TRUE(race_.outcome().is_settled);
  EXPECT_EQ(race_.outcome().winner, 3);
  EXPECT_EQ(measurer_.starts, 1);
  EXPECT_EQ(replayed().outcome(), race_.outcome());
}

struct BadCandidate {
  const char* name;
  Behavior behavior;
  Fault fault;
  int32_t starts;  // of the process
};

class RaceWithABadCandidate : public RaceKernel,
                              public ::testing::WithParamInterface<BadCandidate> {};

TEST_P(RaceWithABadCandidate, CostsThatCandidateAlone) {
  measurer_.ratios = {{2, 0.5}, {3, 0.9}};
  measurer_.behaviors = {{2, GetParam().behavior}};
  const Result<void> raced = run();
  ASSERT_TRUE(raced) << raced.error().message;
  EXPECT_EQ(fault_of(2), GetParam().fault);
  for (const std::size_t other : {0, 1, 3, 4}) EXPECT_EQ(fault_of(other), std::nullopt) << other;
  EXPECT_TRUE(race_.outcome().is_settled);
  EXPECT_EQ(race_.outcome().winner, 3);
  EXPECT_EQ(measurer_.starts, GetParam().starts);
  EXPECT_EQ(replayed().outcome(), race_.outcome());
  // The next session meets it no more.
  measurer_.makes.clear();
  ASSERT_TRUE(run());
  EXPECT_EQ(measurer_.makes[2], 0);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, RaceWithABadCandidate,
    ::testing::Values(
        BadCandidate{"DoesNotCompile", Behavior::kDoesNotCompile, Fault::kDoesNotCompile, 1},
        BadCandidate{"DoesNotLaunch", Behavior::kDoesNotLaunch, Fault::kDoesNotLaunch, 1},
        BadCandidate{"ChangesBits", Behavior::kChangesBits, Fault::kChangesBits, 1},
        BadCandidate{"Crashes", Behavior::kCrashes, Fault::kCrashes, 3},
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
  stops_ = [&] { return ++asked > 9; };  // after three rounds, which 2 wins by far
  ASSERT_TRUE(run());
  ASSERT_GT(race_.outcome().standings[3].dropped_after, 0);
  // In the next session 2 fails, which brings the others back.
  stops_ = [] { return false; };
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
  measurer_.crashes_to_come = 1;
  ASSERT_TRUE(run());
  EXPECT_EQ(race_.outcome().winner, 3);
  EXPECT_EQ(measurer_.starts, 2);
}

TEST_F(RaceKernel, TellsAUsualVersionThatCrashesAgain) {
  measurer_.crashes_to_come = 2;
  EXPECT_FALSE(run());
}

TEST_F(RaceKernel, OpensNothingForARaceThatIsSettled) {
  measurer_.ratios = {{3, 0.9}};
  ASSERT_TRUE(run());
  measurer_.starts = 0;
  measurer_.has_open_fault = true;
  EXPECT_TRUE(run());
}

}  // namespace
}  // namespace moejit::cli
