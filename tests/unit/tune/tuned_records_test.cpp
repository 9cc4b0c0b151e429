// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/decision/tuned_records.h"

#include "tests/unit/tune/journal_sample.h"

#include <gtest/gtest.h>

namespace moejit::tune {
namespace {

using testing::succeeded;

Journal journal_of(const std::vector<std::string>& gpus) {
  Journal journal;
  for (const std::string& gpu : gpus)
    journal.sessions.push_back({.id = "s" + std::to_string(journal.sessions.size()),
                                .gpu = gpu,
                                .context = R"({"date":"2026-12-02","version":"0.1.0"})"});
  return journal;
}

// Adds the list and so many equal rounds, in which the default takes 100 us.
void add_race(Journal& journal, std::size_t session, const std::string& problem, int32_t rounds,
              double wider_us, double deeper_us) {
  const auto add = [&](const Event& event) {
    journal.entries.push_back({session, problem, event});
  };
  CandidateList list = kList;
  list.text_digests = {"d0", "d1", "d2"};
  add(list);
  for (int32_t round = 1; round <= rounds; ++round) {
    add(Block{round, Place::kDefaultFirst, kDefault, 100.0, {}, {}});
    add(Block{round, Place::kCandidate, kWider, wider_us, {}, {}});
    add(Block{round, Place::kCandidate, kDeeper, deeper_us, {}, {}});
    add(Block{round, Place::kDefaultLast, kDefault, 100.0, {}, {}});
  }
}

TEST(TunedRecords, HaveTheWinnerWithItsFigures) {
  Journal journal = journal_of({kH200});
  add_race(journal, 0, "fc1", 6, 90.0, 80.0);
  const auto records = tuned_records(journal);
  ASSERT_TRUE(succeeded(records));
  ASSERT_EQ(records->size(), 1U);
  EXPECT_EQ(records->front().gpu.name, "NVIDIA H200");
  ASSERT_EQ(records->front().entries.size(), 1U);
  const compiler::TuningEntry& entry = records->front().entries.front();
  EXPECT_EQ(entry.problem, "fc1");
  EXPECT_EQ(entry.choices, kDeeper);
  EXPECT_EQ(entry.microseconds, 80.0);
  EXPECT_EQ(entry.default_microseconds, 100.0);
  EXPECT_DOUBLE_EQ(entry.ratio, 0.8);
  EXPECT_EQ(entry.rounds, 6);
  EXPECT_EQ(entry.text_digest, "d2");
  EXPECT_EQ(entry.session, "s0");
  EXPECT_EQ(entry.date, "2026-12-02");
  EXPECT_EQ(entry.version, "0.1.0");
}

TEST(TunedRecords, HaveTheUsualChoicesWhereNothingBeatsThem) {
  Journal journal = journal_of({kH200});
  add_race(journal, 0, "fc1", 16, 99.5, 101.0);
  const auto records = tuned_records(journal);
  ASSERT_TRUE(succeeded(records));
  ASSERT_EQ(records->front().entries.size(), 1U);
  EXPECT_EQ(records->front().entries.front().choices, kDefault);
  EXPECT_EQ(records->front().entries.front().ratio, 1.0);
  EXPECT_EQ(records->front().entries.front().text_digest, "d0");
}

TEST(TunedRecords, LeaveOutRacesThatAreNotSettled) {
  Journal journal = journal_of({kH200});
  add_race(journal, 0, "fc1", 5, 90.0, 80.0);
  const auto records = tuned_records(journal);
  ASSERT_TRUE(succeeded(records));
  EXPECT_TRUE(records->front().entries.empty());
}

// Another version of moejit made other kernels of the same choices.
TEST(TunedRecords, ForgetWhatWasMeasuredWithOtherTexts) {
  Journal journal = journal_of({kH200, kH200});
  add_race(journal, 0, "fc1", 6, 80.0, 90.0);
  add_race(journal, 1, "fc1", 6, 90.0, 70.0);
  std::get<CandidateList>(journal.entries.front().event).text_digests = {"e0", "e1", "e2"};
  const auto records = tuned_records(journal);
  ASSERT_TRUE(succeeded(records));
  const compiler::TuningEntry& entry = records->front().entries.at(0);
  EXPECT_EQ(entry.choices, kDeeper);
  EXPECT_EQ(entry.microseconds, 70.0);
  EXPECT_EQ(entry.rounds, 6);
}

TEST(TunedRecords, AreApartForEachGpu) {
  Journal journal = journal_of({kH200, kH20, kH200});
  add_race(journal, 0, "fc1", 3, 90.0, 80.0);
  add_race(journal, 1, "fc1", 6, 80.0, 90.0);
  add_race(journal, 2, "fc1", 3, 90.0, 80.0);
  const auto records = tuned_records(journal);
  ASSERT_TRUE(succeeded(records));
  ASSERT_EQ(records->size(), 2U);
  EXPECT_EQ(records->at(0).entries.at(0).choices, kDeeper);
  EXPECT_EQ(records->at(0).entries.at(0).session, "s2");
  EXPECT_EQ(records->at(1).gpu.name, "NVIDIA H20");
  EXPECT_EQ(records->at(1).entries.at(0).choices, kWider);
}

TEST(TunedRecords, AreEmptyForASessionThatMeasuredNothing) {
  const auto records = tuned_records(journal_of({kH200}));
  ASSERT_TRUE(succeeded(records));
  ASSERT_EQ(records->size(), 1U);
  EXPECT_EQ(records->front().gpu.name, "NVIDIA H200");
  EXPECT_TRUE(records->front().entries.empty());
}

TEST(TunedRecords, NameAGpuThatIsNone) {
  Journal journal = journal_of({"{}"});
  add_race(journal, 0, "fc1", 6, 90.0, 80.0);
  const auto records = tuned_records(journal);
  ASSERT_FALSE(records);
  EXPECT_NE(records.error().message.find("gpu of the journal"), std::string::npos);
}

}  // namespace
}  // namespace moejit::tune
