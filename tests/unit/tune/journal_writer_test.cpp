// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/decision/journal_writer.h"

#include "compiler/support/file.h"
#include "tests/support/full_disk.h"
#include "tests/unit/tune/journal_sample.h"

#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

namespace moejit::tune {
namespace {

using testing::FullDisk;
using testing::succeeded;
using testing::TestDir;

class JournalWriterTest : public ::testing::Test {
 protected:
  std::string path() const { return folder_ / "journal.jsonl"; }
  std::string text() const { return read_text_file(path()).value_or("no file"); }

  TestDir folder_;
};

TEST_F(JournalWriterTest, LeavesEachLineInTheFileBeforeItReturns) {
  auto writer = JournalWriter::open(path(), kSession);
  ASSERT_TRUE(succeeded(writer));
  EXPECT_EQ(read_journal(path()).value().sessions, std::vector{kSession});
  ASSERT_TRUE(succeeded(writer->append("fc1", kList)));
  EXPECT_EQ(read_journal(path()).value().entries.size(), 1U);
}

TEST_F(JournalWriterTest, AppendsManyEventsOrNone) {
  auto writer = JournalWriter::open(path(), kSession);
  ASSERT_TRUE(succeeded(writer));
  std::vector<Event> events = sample_events();
  ASSERT_TRUE(succeeded(writer->append_all("fc1", events)));
  EXPECT_EQ(events_of(read_journal(path()).value()), events);
  const std::string before = text();
  events.push_back(Block{.round = 0, .choices = kWider, .microseconds = 1.0});
  EXPECT_FALSE(writer->append_all("fc1", events));
  EXPECT_EQ(text(), before);
  EXPECT_TRUE(succeeded(writer->append("fc1", kList)));
}

TEST_F(JournalWriterTest, ExcludesASecondOne) {
  auto first = JournalWriter::open(path(), kSession);
  ASSERT_TRUE(succeeded(first));
  const std::string before = text();
  const auto second = JournalWriter::open(path(), kSession);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().message, "cannot append to " + path() + ": another tuner has it open");
  EXPECT_EQ(text(), before);
}

TEST_F(JournalWriterTest, LetsAnotherOneInOnceItIsGone) {
  write_journal(path(), kSession, {});
  EXPECT_TRUE(succeeded(JournalWriter::open(path(), kSession)));
}

TEST_F(JournalWriterTest, EndsATornLineAtEachLengthOfTheFile) {
  // Short lines, since each length costs the time of three syncs.
  write_journal(path(), {.id = "a"}, {CandidateList{{kDefault}}});
  const std::string whole = text();
  const Session later{.id = "b"};
  for (std::size_t length = 0; length <= whole.size(); ++length) {
    write_fast(path(), whole.substr(0, length));
    const auto before = read_journal(path());
    ASSERT_TRUE(succeeded(before)) << length;
    write_journal(path(), later, {kList}, "fc2");
    const auto after = read_journal(path());
    ASSERT_TRUE(succeeded(after)) << length;
    EXPECT_TRUE(text().starts_with(whole.substr(0, length))) << length;
    EXPECT_EQ(after->torn_lines, before->torn_lines) << length;
    std::vector<Entry> entries = before->entries;
    entries.push_back({before->sessions.size(), "fc2", kList});
    EXPECT_EQ(after->entries, entries) << length;
  }
}

TEST_F(JournalWriterTest, SurvivesTunersThatWereKilledAtOnceOneAfterTheOther) {
  write_journal(path(), kSession, {kList});
  const std::string torn = text() + "{\"session\":\"7f3a\",\"pro\n{\"journal\":\"moej\n{\"jo";
  write_fast(path(), torn);
  write_journal(path(), kSession, {kList});
  const auto journal = read_journal(path());
  ASSERT_TRUE(succeeded(journal));
  EXPECT_EQ(journal->torn_lines, 3);
  EXPECT_EQ(events_of(*journal), (std::vector<Event>{kList, kList}));
}

TEST_F(JournalWriterTest, SurvivesTunersThatWereKilledInTheFirstLineOfAll) {
  write_fast(path(), "{\"jour");
  for (const char* const id : {"a", "b", "c"}) write_journal(path(), {.id = id}, {kList});
  const auto journal = read_journal(path());
  ASSERT_TRUE(succeeded(journal));
  EXPECT_EQ(journal->torn_lines, 1);
  EXPECT_EQ(events_of(*journal), (std::vector<Event>{kList, kList, kList}));
}

TEST_F(JournalWriterTest, TellsAFullDiskAndKeepsWhatWasWritten) {
  write_journal(path(), kSession, {kList});
  const std::string before = text();
  {
    auto writer = JournalWriter::open(path(), kSession);
    ASSERT_TRUE(succeeded(writer));
    const FullDisk disk(text().size() + 10);
    const auto full = writer->append("fc1", kList);
    ASSERT_FALSE(full);
    EXPECT_EQ(full.error().code, ErrorCode::kFileWrite);
    EXPECT_EQ(full.error().message, "cannot write " + path() + ": File too large");
  }
  const auto journal = read_journal(path());
  ASSERT_TRUE(succeeded(journal));
  EXPECT_TRUE(text().starts_with(before));
  EXPECT_EQ(events_of(*journal), std::vector<Event>{kList});
  EXPECT_EQ(journal->torn_lines, 1);
}

TEST_F(JournalWriterTest, TakesNothingMoreOnceALineIsTorn) {
  auto writer = JournalWriter::open(path(), kSession);
  ASSERT_TRUE(succeeded(writer));
  {
    const FullDisk disk(text().size() + 10);
    ASSERT_FALSE(writer->append("fc1", kList));
  }
  const std::string torn = text();
  EXPECT_FALSE(writer->append("fc1", kList));
  EXPECT_EQ(text(), torn);
}

TEST_F(JournalWriterTest, RefusesWhatCouldNotBeReadBack) {
  auto writer = JournalWriter::open(path(), kSession);
  ASSERT_TRUE(succeeded(writer));
  const std::string before = text();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Event& event : std::vector<Event>{
           CandidateList{}, CandidateList{{kDefault, kDefault}}, CandidateList{{kDefault}, {}, 1.5},
           CandidateList{{kDefault}, {}, nan}, CandidateList{{kDefault}, {}, -0.5},
           Block{0, Place::kCandidate, kDefault, 1.0, {}, {}},
           Block{1, Place::kCandidate, kDefault, 0.0, {}, {}},
           Block{1, Place::kCandidate, kDefault, nan, {}, {}},
           Block{1, Place::kCandidate, kDefault, 1.0, nan, {}},
           CandidateList{{{{std::string(70000, 'k'), 1}}}}})
    EXPECT_FALSE(writer->append("fc1", event));
  EXPECT_EQ(text(), before);
  EXPECT_TRUE(succeeded(writer->append("fc1", kList)));
}

TEST_F(JournalWriterTest, CutsLongDetails) {
  const std::string log(100000, '\x01');  // each byte becomes six in JSON
  write_journal(path(), kSession, {FoundFault{kDefault, Fault::kSpills, log}});
  const auto journal = read_journal(path());
  ASSERT_TRUE(succeeded(journal));
  EXPECT_EQ(
      events_of(*journal),
      (std::vector<Event>{FoundFault{kDefault, Fault::kSpills, log.substr(0, kMostDetailBytes)}}));
}

TEST_F(JournalWriterTest, RefusesAFileOfSomethingElse) {
  write_fast(path(), "root:x:0:0\n");
  const auto writer = JournalWriter::open(path(), kSession);
  ASSERT_FALSE(writer);
  EXPECT_EQ(writer.error().code, ErrorCode::kInvalidFile);
  EXPECT_EQ(text(), "root:x:0:0\n");
}

TEST_F(JournalWriterTest, RefusesAFolderAndADevice) {
  EXPECT_FALSE(JournalWriter::open(folder_.path(), kSession));
  EXPECT_FALSE(JournalWriter::open("/dev/null", kSession));
  EXPECT_FALSE(JournalWriter::open(folder_ / "none" / "journal.jsonl", kSession));
}

TEST_F(JournalWriterTest, RefusesAGpuThatIsNoJsonObject) {
  for (const char* const gpu : {"", "[]", "{", "H200"})
    EXPECT_FALSE(JournalWriter::open(path(), {.id = "a", .gpu = gpu})) << gpu;
}

TEST_F(JournalWriterTest, StopsBeforeTheFileCouldNotBeReadAnyMore) {
  write_journal(path(), kSession, {});
  std::filesystem::resize_file(path(), kMostJournalBytes - 10);
  const auto writer = JournalWriter::open(path(), kSession);
  ASSERT_FALSE(writer);
  EXPECT_EQ(writer.error().code, ErrorCode::kInvalidValue);
}

}  // namespace
}  // namespace moejit::tune
