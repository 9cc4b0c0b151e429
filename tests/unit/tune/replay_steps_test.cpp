// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/decision/replay_steps.h"

#include "runtime/tune/decision/journal_line.h"
#include "tests/unit/tune/step_journal.h"

#include <cmath>
#include <gtest/gtest.h>

namespace moejit::tune {
namespace {

using testing::succeeded;
using testing::TestDir;
using Names = std::vector<std::string>;

// Returns the only step of the sheet.
StepConfirmation confirmation_of(const StepSheet& sheet) {
  const std::vector<ReplayedStep> steps = sheet.replayed();
  EXPECT_EQ(steps.size(), 1U);
  return steps.empty() ? StepConfirmation({}) : steps.front().confirmation;
}

StepSheet sheet_of_two_races() {
  StepSheet sheet;
  sheet.add_race("fc1", 90);
  sheet.add_race("fc2", 80);
  return sheet;
}

TEST(ProposedChoices, AreTheWinnersOfDecidedRaces) {
  StepSheet sheet = sheet_of_two_races();
  sheet.add_race("open", 80, 5);
  const StepList list = sheet.proposed({"open", "fc2", "nowhere", "fc1", "fc2"});
  ASSERT_EQ(problems_of(list.choices), (Names{"fc1", "fc2", "open"}));
  EXPECT_EQ(list.choices[0].choices, kDeeper);
  EXPECT_EQ(list.choices[0].text_digest, "d2");
  EXPECT_DOUBLE_EQ(list.choices[0].certainty, 0.1);
  EXPECT_DOUBLE_EQ(list.choices[1].certainty, 0.2);
  EXPECT_EQ(list.choices[2].choices, kDefault);
  EXPECT_EQ(list.choices[2].text_digest, "d0");
  EXPECT_EQ(list.choices[2].certainty, 0.0);
}

// More rounds may name another winner than the one that leads.
TEST(ProposedChoices, AreTheUsualOnesWhileARaceIsOpen) {
  StepSheet sheet;
  sheet.add("fc1", kList);
  for (int32_t round = 1; round <= 6; ++round) {
    sheet.add("fc1", Block{round, Place::kDefaultFirst, kDefault, 100.0, {}, {}});
    const double us = round % 2 == 0 ? 89.0 : 91.0;  // both take 90 in the median
    sheet.add("fc1", Block{round, Place::kCandidate, kDeeper, us, {}, {}});
    sheet.add("fc1", Block{round, Place::kCandidate, kWider, 180.0 - us, {}, {}});
    sheet.add("fc1", Block{round, Place::kDefaultLast, kDefault, 100.0, {}, {}});
  }
  const Outcome outcome = replay(sheet.journal).value().front().race.outcome();
  ASSERT_EQ(outcome.winner, 1);
  ASSERT_FALSE(outcome.is_settled);
  const StepList list = sheet.proposed({"fc1"});
  EXPECT_EQ(list.choices.front().choices, kDefault);
  EXPECT_EQ(list.choices.front().certainty, 0.0);
}

TEST(ReplaySteps, ConfirmsAndDropsByTheJournal) {
  StepSheet sheet = sheet_of_two_races();
  sheet.add_list({"fc1", "fc2"});
  sheet.add_rounds(101, 6);
  EXPECT_EQ(problems_of(confirmation_of(sheet).dropped()), Names{"fc1"});
  sheet.add_rounds(98, 6, 7);
  EXPECT_EQ(confirmation_of(sheet).state(), StepState::kConfirmed);
  EXPECT_EQ(problems_of(confirmation_of(sheet).set()), Names{"fc2"});
  EXPECT_EQ(sheet.replayed().front().step, kStep);
  EXPECT_EQ(sheet.replayed().front().gpu, kSession.gpu);
}

// A tuner on a made-up GPU, on which time depends on the set and on its rounds so far alone.
class FakeTuner {
 public:
  explicit FakeTuner(std::string path) : path_(std::move(path)) {}

  // Goes on with the journal until the step is decided, or for so many rounds.
  StepConfirmation run(const std::string& session, int32_t most_rounds = 1000) {
    log(text_of(Session{.id = session, .gpu = kSession.gpu}).value());
    const Journal journal = read_journal(path_).value();
    const auto races = replay(journal).value();
    const StepList list = proposed_choices(races, kSession.gpu, Names{"a", "b", "c", "d"});
    log(text_of(session, kStep, list));
    StepConfirmation step =
        replay_steps(read_journal(path_).value(), races).value().front().confirmation;
    for (int32_t round = 1; step.state() == StepState::kMeasuring && round <= most_rounds;
         ++round) {
      const double percent = percent_of(step);
      log(text_of(session, kStep,
                  StepRound{round, step.set_digest(), step_times(percent), 1400.5, {}}));
      EXPECT_TRUE(succeeded(step.add(step_times(percent))));
    }
    return step;
  }

 private:
  // Four choices do not decide, three are slower, two gain 1 % but for one round.
  static double percent_of(const StepConfirmation& step) {
    const int32_t round = step.figure().rounds;
    if (step.set().size() == 4) return 100 + std::sin(3.0 * round);
    return step.set().size() == 3 ? 101.25 : round == 1 ? 102 : 99 + 0.01 * round;
  }

  void log(const std::string& line) { std::ofstream(path_, std::ios::app) << line << "\n"; }

  std::string path_;
};

// Writes the races of four problems, and returns how many bytes that takes.
std::size_t write_races(const std::string& path) {
  StepSheet sheet;
  for (const auto& [problem, percent] :
       {std::pair("a", 70.0), {"b", 75.0}, {"c", 80.0}, {"d", 85.0}})
    sheet.add_race(problem, percent);
  std::string text = text_of(kSession).value() + "\n";
  for (const Entry& entry : sheet.journal.entries)
    text += text_of(kSession.id, entry.problem, entry.event) + "\n";
  write_fast(path, text);
  return text.size();
}

void expect_same(const StepConfirmation& step, const StepConfirmation& other) {
  EXPECT_EQ(step.state(), other.state());
  EXPECT_EQ(problems_of(step.set()), problems_of(other.set()));
  EXPECT_EQ(problems_of(step.dropped()), problems_of(other.dropped()));
  EXPECT_EQ(step.sets(), other.sets());
  EXPECT_EQ(step.figure(), other.figure());
}

TEST(ReplaySteps, DecidesAsTheLiveTunerDid) {
  const TestDir folder;
  const std::string path = folder / "journal.jsonl";
  write_races(path);
  const StepConfirmation live = FakeTuner(path).run("s1");
  EXPECT_EQ(live.state(), StepState::kConfirmed);
  EXPECT_EQ(problems_of(live.set()), (Names{"a", "b"}));
  EXPECT_EQ(live.figure().rounds, 9);
  const Journal journal = read_journal(path).value();
  const auto steps = replay_steps(journal, replay(journal).value());
  ASSERT_TRUE(succeeded(steps));
  expect_same(steps->front().confirmation, live);
}

TEST(ReplaySteps, DecidesTheSameIfATunerIsKilledAnywhere) {
  const TestDir folder;
  const std::string path = folder / "journal.jsonl";
  const std::size_t races = write_races(path);
  const StepConfirmation whole = FakeTuner(path).run("s1");
  const std::string text = read_text_file(path).value();
  for (std::size_t length = races; length <= text.size(); length += 97) {
    SCOPED_TRACE(length);
    write_fast(path, text.substr(0, length) + "\n");  // a torn line is ended by the next tuner
    expect_same(FakeTuner(path).run("s2"), whole);
  }
}

TEST(ReplaySteps, DecidesTheSameInManySessions) {
  const TestDir folder;
  const std::string path = folder / "journal.jsonl";
  write_races(path);
  const StepConfirmation whole = FakeTuner(path).run("s1");
  write_races(path);
  for (int32_t i = 0; i < 40; ++i) FakeTuner(path).run("s" + std::to_string(i), 1);
  expect_same(FakeTuner(path).run("last"), whole);
}

TEST(ReplaySteps, CountsRoundsOfInterleavedSessions) {
  StepSheet sheet = sheet_of_two_races();
  sheet.add_list({"fc1", "fc2"});
  sheet.begin_session("b");
  sheet.add_list({"fc1", "fc2"});
  for (int32_t round = 1; round <= 3; ++round)
    for (sheet.session = 0; sheet.session < 2; ++sheet.session) sheet.add_rounds(98, 1, round);
  EXPECT_EQ(confirmation_of(sheet).state(), StepState::kConfirmed);
  EXPECT_EQ(confirmation_of(sheet).figure().rounds, 6);
  EXPECT_EQ(sheet.replayed().front().session, 1U);
}

TEST(ReplaySteps, CountsACopyOfARoundOnce) {
  StepSheet sheet = sheet_of_two_races();
  sheet.add_list({"fc1", "fc2"});
  for (int32_t copy = 0; copy < 2; ++copy) sheet.add_rounds(98, 3);
  EXPECT_EQ(confirmation_of(sheet).figure().rounds, 3);
}

TEST(ReplaySteps, IgnoresRoundsOfASetThatIsNotAskedFor) {
  StepSheet sheet = sheet_of_two_races();
  sheet.add_list({"fc1", "fc2"});
  for (int32_t round = 1; round <= 6; ++round)
    sheet.add(kStep, StepRound{.round = round, .set = "0", .times = step_times(90)});
  EXPECT_EQ(confirmation_of(sheet).figure().rounds, 0);
}

// Without digests of texts choices are told apart by themselves alone.
TEST(ReplaySteps, LeavesOutAStepWhoseChoicesNoLongerWin) {
  StepSheet sheet;
  sheet.add_race("fc1", 90, 6, "");
  sheet.add_race("fc2", 80, 6, "");
  sheet.add_list({"fc1", "fc2"});
  sheet.add_rounds(98, 6);
  sheet.begin_session("b");
  sheet.add("fc1", FoundFault{kDeeper, Fault::kChangesBits, ""});
  EXPECT_TRUE(sheet.replayed().empty());
  sheet.add_race("fc1", 90, 6, "");  // kWider goes on
  // The rounds of before do not count for the new winner.
  sheet.add_list({"fc1", "fc2"});
  sheet.add_rounds(101, 5);
  const StepConfirmation step = confirmation_of(sheet);
  EXPECT_EQ(step.figure().rounds, 5);
  ASSERT_EQ(step.set().size(), 2U);
  EXPECT_EQ(step.set().back().choices, kWider);
}

TEST(ReplaySteps, LeavesOutAStepOfOtherTexts) {
  StepSheet sheet = sheet_of_two_races();
  sheet.add_list({"fc1", "fc2"});
  sheet.add_rounds(98, 6);
  sheet.begin_session("b");
  sheet.add_race("fc1", 90, 6, "e");
  EXPECT_TRUE(sheet.replayed().empty());
  sheet.add_list({"fc1", "fc2"});
  EXPECT_EQ(confirmation_of(sheet).figure().rounds, 0);
}

// A race that was open when the step was measured may propose other choices now.
TEST(ReplaySteps, LeavesOutAStepInWhichARaceWasOpen) {
  StepSheet sheet = sheet_of_two_races();
  sheet.add_race("open", 85, 5);
  sheet.add_list({"fc1", "fc2", "open"});
  sheet.add_rounds(98, 6);
  EXPECT_EQ(confirmation_of(sheet).state(), StepState::kConfirmed);
  sheet.begin_session("b");
  sheet.add_race("open", 85, 1);
  EXPECT_TRUE(sheet.replayed().empty());
}

TEST(ReplaySteps, KeepsGpusApart) {
  StepSheet sheet = sheet_of_two_races();
  sheet.add_list({"fc1", "fc2"});
  sheet.add_rounds(98, 5);
  sheet.begin_session("b", R"({"sms":78})");
  sheet.add_race("fc1");
  sheet.add_list({"fc1"});
  sheet.add_rounds(101, 3);
  const std::vector<ReplayedStep> steps = sheet.replayed();
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0].confirmation.figure().rounds, 5);
  EXPECT_EQ(steps[1].gpu, R"({"sms":78})");
  EXPECT_EQ(steps[1].confirmation.figure().rounds, 3);
}

TEST(ReplaySteps, RefusesRoundsWithoutList) {
  StepSheet sheet = sheet_of_two_races();
  sheet.add_rounds(98, 1);
  const auto steps = replay_steps(sheet.journal, replay(sheet.journal).value());
  ASSERT_FALSE(steps);
  EXPECT_EQ(steps.error().code, ErrorCode::kInvalidValue);
}

}  // namespace
}  // namespace moejit::tune
