// SPDX-License-Identifier: Apache-2.0
// What whole steps leave in a record.
#include "runtime/tune/decision/tuned_records.h"
#include "tests/unit/tune/journal_gpus.h"
#include "tests/unit/tune/step_journal.h"

#include <gtest/gtest.h>

namespace moejit::tune {
namespace {

using compiler::TuningRecord;
using testing::succeeded;
using Names = std::vector<std::string>;

// A sheet of an H200 with three decided races, of which "gemm" is in no step.
StepSheet h200_sheet() {
  StepSheet sheet;
  sheet.journal.sessions = {
      {.id = "s0", .gpu = kH200, .context = R"({"date":"2026-12-02","version":"0.1.0"})"}};
  sheet.add_race("fc1", 90);
  sheet.add_race("fc2", 80);
  sheet.add_race("gemm", 85);
  return sheet;
}

// Returns the record of the sheet's first GPU.
TuningRecord record_of(const StepSheet& sheet) {
  const auto records = tuned_records(sheet.journal);
  EXPECT_TRUE(succeeded(records));
  return records && !records->empty() ? records->front() : TuningRecord{};
}

Names entries_of(const TuningRecord& record) {
  Names problems;
  for (const compiler::TuningEntry& entry : record.entries) problems.push_back(entry.problem);
  return problems;
}

TEST(TunedSteps, AreInTheRecordOnceConfirmed) {
  StepSheet sheet = h200_sheet();
  sheet.add_list({"fc1", "fc2"});
  sheet.add_rounds(98, 6);
  const TuningRecord record = record_of(sheet);
  EXPECT_EQ(entries_of(record), (Names{"fc1", "fc2", "gemm"}));
  ASSERT_EQ(record.steps.size(), 1U);
  const compiler::TuningStep& step = record.steps.front();
  EXPECT_EQ(step.step, kStep);
  EXPECT_EQ(step.microseconds, 98.0);
  EXPECT_EQ(step.default_microseconds, 100.0);
  EXPECT_DOUBLE_EQ(step.ratio, 0.98);
  EXPECT_DOUBLE_EQ(step.ratio_low, 0.98);
  EXPECT_DOUBLE_EQ(step.ratio_high, 0.98);
  EXPECT_EQ(step.rounds, 6);
  EXPECT_EQ(step.session, "s0");
  EXPECT_EQ(step.date, "2026-12-02");
  EXPECT_EQ(step.version, "0.1.0");
}

TEST(TunedSteps, LeaveOutAChoiceThatTheyDropped) {
  StepSheet sheet = h200_sheet();
  sheet.add_list({"fc1", "fc2"});
  sheet.add_rounds(101, 6);
  sheet.add_rounds(98, 6, 7);
  EXPECT_EQ(entries_of(record_of(sheet)), (Names{"fc2", "gemm"}));
  EXPECT_EQ(record_of(sheet).steps.size(), 1U);
}

TEST(TunedSteps, LeaveOutAllChoicesIfNoSetIsFaster) {
  StepSheet sheet = h200_sheet();
  sheet.add_list({"fc1", "fc2"});
  sheet.add_rounds(101, 6);
  sheet.add_rounds(101, 6, 7);
  EXPECT_EQ(entries_of(record_of(sheet)), Names{"gemm"});
  EXPECT_TRUE(record_of(sheet).steps.empty());
}

TEST(TunedSteps, ThatAreNotDecidedKeepTheChoicesThatTheyMeasure) {
  StepSheet sheet = h200_sheet();
  sheet.add_list({"fc1", "fc2"});
  sheet.add_rounds(101, 6);
  sheet.add_rounds(98, 5, 7);
  EXPECT_EQ(entries_of(record_of(sheet)), (Names{"fc2", "gemm"}));
  EXPECT_TRUE(record_of(sheet).steps.empty());
}

TEST(TunedSteps, DropAChoiceForAllLayers) {
  StepSheet sheet = h200_sheet();
  for (const char* const name : {"step z", "step a"}) {
    sheet.step = name;
    sheet.add_list({"fc1", "fc2"});
    sheet.add_rounds(98, 6);
  }
  sheet.step = "step m";
  sheet.add_list({"fc1"});
  sheet.add_rounds(101, 6);
  const TuningRecord record = record_of(sheet);
  EXPECT_EQ(entries_of(record), (Names{"fc2", "gemm"}));
  ASSERT_EQ(record.steps.size(), 2U);
  EXPECT_EQ(record.steps[0].step, "step a");
  EXPECT_EQ(record.steps[1].step, "step z");
}

TEST(TunedSteps, OfAnotherGpuDropNothing) {
  StepSheet sheet = h200_sheet();
  sheet.begin_session("s1", kH20);
  sheet.add_race("fc1", 90);
  sheet.add_list({"fc1"});
  sheet.add_rounds(101, 6);
  EXPECT_EQ(entries_of(record_of(sheet)), (Names{"fc1", "fc2", "gemm"}));
  EXPECT_TRUE(tuned_records(sheet.journal)->at(1).entries.empty());
}

TEST(TunedSteps, HaveTheSessionOfTheirLastRound) {
  StepSheet sheet = h200_sheet();
  sheet.add_list({"fc1", "fc2"});
  sheet.add_rounds(98, 3);
  sheet.begin_session("s1", kH200);
  sheet.add_list({"fc1", "fc2"});
  sheet.add_rounds(98, 3);
  sheet.begin_session("s2", kH200);
  sheet.add_list({"fc1", "fc2"});
  EXPECT_EQ(record_of(sheet).steps.at(0).session, "s1");
}

TEST(WithoutDecided, TakesOutWhatTheJournalDecidesAnew) {
  StepSheet sheet = h200_sheet();
  sheet.add_race("open", 85, 5);
  sheet.add_list({"fc1", "fc2"});
  sheet.add_rounds(101, 6);
  TuningRecord before{.gpu = record_of(sheet).gpu};
  for (const char* const problem : {"fc1", "fc2", "open", "other"})
    before.entries.push_back({.problem = problem});
  before.steps = {{.step = kStep}, {.step = "step of another layer"}};
  const auto left = without_decided(before, sheet.journal);
  ASSERT_TRUE(succeeded(left));
  EXPECT_EQ(entries_of(*left), (Names{"open", "other"}));
  ASSERT_EQ(left->steps.size(), 1U);
  EXPECT_EQ(left->steps.front().step, "step of another layer");
  before.gpu.sm_count = 78;
  EXPECT_EQ(without_decided(before, sheet.journal)->entries.size(), 4U);
}

}  // namespace
}  // namespace moejit::tune
