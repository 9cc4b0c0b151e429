// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/decision/journal.h"

#include "compiler/support/file.h"
#include "tests/unit/tune/journal_sample.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace moejit::tune {
namespace {

using testing::succeeded;
using testing::TestDir;

constexpr std::string_view kHeader =
    R"({"journal":"moejit-tuning-journal-1","session":"a","gpu":{}})"
    "\n";

class JournalTest : public ::testing::Test {
 protected:
  std::string path() const { return folder_ / "journal.jsonl"; }
  Result<Journal> read(std::string_view text) {
    write_fast(path(), text);
    return read_journal(path());
  }
  // Returns the message of the error without the path.
  std::string message_for(std::string_view text) {
    write_fast(path(), text);
    return message_for_file();
  }
  std::string message_for_file() {
    const auto journal = read_journal(path());
    if (journal) return "no error";
    return journal.error().message.substr(std::min(path().size(), journal.error().message.size()));
  }
  std::string behind_header(std::string_view text) {
    return std::string(kHeader) + std::string(text);
  }

  TestDir folder_;
};

TEST_F(JournalTest, ReadsBackWhatWasWritten) {
  write_journal(path(), kSession, sample_events());
  const auto journal = read_journal(path());
  ASSERT_TRUE(succeeded(journal));
  EXPECT_EQ(journal->sessions, std::vector{kSession});
  EXPECT_EQ(journal->torn_lines, 0);
  ASSERT_EQ(journal->entries.size(), sample_events().size());
  for (std::size_t i = 0; i < sample_events().size(); ++i)
    EXPECT_EQ(journal->entries[i], (Entry{0, "fc1", sample_events()[i]})) << i;
}

TEST_F(JournalTest, HasOneObjectALine) {
  write_journal(path(), kSession, {kList, sample_events()[1]});
  EXPECT_EQ(
      read_text_file(path()).value(),
      R"({"journal":"moejit-tuning-journal-1","session":"7f3a",)"
      R"("gpu":{"arch":"sm_90a","sms":132},"context":{"driver":"580.1"}})"
      "\n"
      R"({"session":"7f3a","problem":"fc1","candidates":[{"band_tiles":16,"stages":4},)"
      R"({"band_tiles":32,"stages":4},{"band_tiles":16,"stages":5}],"estimated_share":0.25})"
      "\n"
      R"({"session":"7f3a","problem":"fc1","round":1,"place":"default_first",)"
      R"("choices":{"band_tiles":16,"stages":4},"microseconds":812.5,"megahertz":1402.25,"watts":690})"
      "\n");
}

TEST_F(JournalTest, ReadsOverWhatEarlierVersionsWroteOfWholeSteps) {
  const auto journal = read(behind_header(
      R"({"session":"a","problem":"step x","step_choices":[{"problem":"p","choices":{}}]})"
      "\n"
      R"({"session":"a","problem":"p","candidates":[{}]})"
      "\n"
      R"({"session":"a","problem":"step x","step_round":1,"set":"9c","tuned_microseconds":[1,2]})"
      "\n"));
  ASSERT_TRUE(succeeded(journal));
  EXPECT_EQ(events_of(*journal), std::vector<Event>{CandidateList{{compiler::Choices{}}}});
}

// Nothing else is left out quietly.
TEST_F(JournalTest, RefusesALineOfAnUnknownKind) {
  EXPECT_EQ(message_for(behind_header(R"({"session":"a","problem":"p","new_kind":1})")),
            ":2: $.microseconds: missing key");
}

TEST_F(JournalTest, IgnoresUnknownFieldsAndBlankLines) {
  const auto journal =
      read(behind_header("\n"
                         R"({"session":"a","problem":"p","color":[1],"candidates":[{}]})"
                         "\n \r\n"));
  ASSERT_TRUE(succeeded(journal));
  EXPECT_EQ(events_of(*journal), std::vector<Event>{CandidateList{{compiler::Choices{}}}});
  EXPECT_EQ(journal->torn_lines, 0);
}

TEST_F(JournalTest, UnitesSessions) {
  write_journal(path(), kSession, {kList});
  Session other = kSession;
  other.id = "b";
  write_journal(path(), other, {kList}, "fc2");
  const auto journal = read_journal(path());
  ASSERT_TRUE(succeeded(journal));
  EXPECT_EQ(journal->sessions, (std::vector{kSession, other}));
  EXPECT_EQ(journal->entries, (std::vector<Entry>{{0, "fc1", kList}, {1, "fc2", kList}}));
}

TEST_F(JournalTest, MayBeJoinedWithItsCopy) {
  write_journal(path(), kSession, {kList});
  const std::string text = read_text_file(path()).value();
  const auto journal = read(text + text);
  ASSERT_TRUE(succeeded(journal));
  EXPECT_EQ(journal->sessions.size(), 1U);
  EXPECT_EQ(journal->entries.size(), 2U);
}

TEST_F(JournalTest, IsEmptyIfTheFileIs) {
  const auto journal = read("");
  ASSERT_TRUE(succeeded(journal));
  EXPECT_TRUE(journal->sessions.empty());
}

TEST_F(JournalTest, HasAllWholeLinesAtEachLengthOfItsFile) {
  write_journal(path(), kSession, sample_events());
  const std::string text = read_text_file(path()).value();
  for (std::size_t length = 0; length <= text.size(); ++length) {
    const std::string_view kept = std::string_view(text).substr(0, length);
    // A line is whole once its last brace is there; the newline behind it adds nothing.
    const bool is_whole =
        length == 0 || kept.back() == '\n' || (length < text.size() && text[length] == '\n');
    auto lines = static_cast<std::size_t>(std::ranges::count(kept, '\n'));
    if (is_whole && length > 0 && kept.back() != '\n') ++lines;
    const auto journal = read(kept);
    ASSERT_TRUE(succeeded(journal)) << length;
    EXPECT_EQ(journal->sessions.size(), lines > 0 ? 1U : 0U) << length;
    EXPECT_EQ(journal->torn_lines, is_whole ? 0 : 1) << length;
    std::vector<Event> whole = sample_events();
    whole.resize(lines > 0 ? lines - 1 : 0);
    EXPECT_EQ(events_of(*journal), whole) << length;
  }
}

TEST_F(JournalTest, IgnoresATornLineThatHasItsNewline) {
  const auto journal = read(behind_header("{\"session\":\n"));
  ASSERT_TRUE(succeeded(journal));
  EXPECT_EQ(journal->torn_lines, 1);
}

TEST_F(JournalTest, RefusesAnInvalidLineInTheMiddleOfASession) {
  const auto journal =
      read(behind_header("{\"session\":\n"
                         R"({"session":"a","problem":"p","candidates":[{}]})"
                         "\n"));
  ASSERT_FALSE(journal);
  EXPECT_EQ(journal.error().code, ErrorCode::kInvalidJson);
  EXPECT_TRUE(journal.error().message.starts_with(path() + ":2:")) << journal.error().message;
  EXPECT_NE(journal.error().hint, "");
}

TEST_F(JournalTest, RefusesAFileOfSomethingElse) {
  EXPECT_TRUE(message_for("root:x:0:0\nbin:x:1:1\n").starts_with(":1:1: not JSON"));
  EXPECT_EQ(message_for("[]\n"), ":1: $: got an array, wanted an object");
}

TEST_F(JournalTest, RefusesAnotherFormat) {
  const auto journal = read(R"({"journal":"moejit-tuning-journal-2","session":"a"})");
  ASSERT_FALSE(journal);
  EXPECT_EQ(journal.error().code, ErrorCode::kUnsupported);
}

TEST_F(JournalTest, RefusesALineOfASessionThatHasNotBegun) {
  EXPECT_EQ(message_for(behind_header(R"({"session":"b","problem":"p","candidates":[{}]})")),
            ":2: $.session: got \"b\", wanted a session that began on an earlier line");
}

TEST_F(JournalTest, RefusesASessionThatMovesToAnotherGpu) {
  EXPECT_EQ(message_for(behind_header(
                R"({"journal":"moejit-tuning-journal-1","session":"a","gpu":{"sms":78}})")),
            ":2: $.session: got \"a\", which began on another gpu, wanted a new id");
}

TEST_F(JournalTest, RefusesALongLine) {
  EXPECT_EQ(message_for(behind_header(R"({"session":")" + std::string(65536, 'x') + "\"}\n" +
                                      std::string("{}\n"))),
            ":2: got a line of 65551 bytes, wanted at most 65536");
}

TEST_F(JournalTest, RefusesALongFile) {
  write_fast(path(), "");
  std::filesystem::resize_file(path(), kMostJournalBytes + 1);  // takes no space on the disk
  EXPECT_EQ(message_for_file(), ": got 268435457 bytes, wanted at most 268435456");
}

TEST_F(JournalTest, RefusesAFileThatIsNotThere) {
  const auto journal = read_journal(path());
  ASSERT_FALSE(journal);
  EXPECT_EQ(journal.error().code, ErrorCode::kFileNotFound);
}

TEST_F(JournalTest, NamesLineAndFieldOfWhatIsWrong) {
  const auto event = [&](std::string_view fields) {
    return message_for(behind_header(R"({"session":"a","problem":"p",)" + std::string(fields)));
  };
  EXPECT_EQ(event(R"("candidates":[]})"),
            ":2: $.candidates: got no candidate, wanted the default at least");
  EXPECT_EQ(event(R"("candidates":[{"stages":4},{"stages":4}]})"),
            ":2: $.candidates[1]: got \"stages=4\" again, wanted each candidate once");
  EXPECT_EQ(event(R"("candidates":[{"stages":"4"}]})"),
            ":2: $.candidates[0].stages: got \"4\", wanted 0 to 1099511627776");
  EXPECT_EQ(event(R"("candidates":[{}],"estimated_share":2})"),
            ":2: $.estimated_share: got 2, wanted 0 to 1");
  EXPECT_EQ(event(R"("choices":{},"fault":"melts"})"),
            ":2: $.fault: got \"melts\", wanted the name of a fault such as \"changes_bits\"");
  EXPECT_EQ(event(R"("round":1})"), ":2: $.microseconds: missing key");
  EXPECT_EQ(event(R"("round":0,"microseconds":1})"), ":2: $.round: got 0, wanted 1 to 2147483647");
  EXPECT_EQ(event(R"("round":1,"place":"candidate","choices":{},"microseconds":0})"),
            ":2: $.microseconds: got 0, wanted 1e-06 to 86400000000");
  EXPECT_EQ(event(R"("round":1,"place":"canditate","choices":{},"microseconds":1})"),
            ":2: $.place: got \"canditate\", wanted one of \"default_first\", \"candidate\", "
            "\"default_last\"");
}

}  // namespace
}  // namespace moejit::tune
