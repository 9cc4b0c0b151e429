// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/decision/step_line.h"

#include "compiler/support/file.h"
#include "runtime/tune/decision/journal_line.h"
#include "tests/unit/tune/journal_sample.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace moejit::tune {
namespace {

using testing::succeeded;
using testing::TestDir;

class StepLineTest : public ::testing::Test {
 protected:
  std::string path() const { return folder_ / "journal.jsonl"; }
  // Returns the message about a journal whose second line has these members, without the path.
  std::string message_for(std::string_view members) {
    write_fast(path(), text_of(Session{.id = "a"}).value() +
                           "\n{\"session\":\"a\",\"problem\":\"p\"," + std::string(members));
    const auto journal = read_journal(path());
    if (journal) return "no error";
    return journal.error().message.substr(std::min(path().size(), journal.error().message.size()));
  }

  TestDir folder_;
};

TEST_F(StepLineTest, HasARoundOnOneLine) {
  write_journal(path(), kSession, {sample_events()[5], sample_events()[6]}, "step a");
  EXPECT_EQ(read_text_file(path()).value(),
            text_of(kSession).value() +
                "\n"
                R"({"session":"7f3a","problem":"step a","step_choices":[{"problem":"fc1",)"
                R"("choices":{"band_tiles":32,"stages":4},"text_digest":"d1","certainty":0.1},)"
                R"({"problem":"fc2","choices":{"band_tiles":16,"stages":4},"certainty":0}]})"
                "\n"
                R"({"session":"7f3a","problem":"step a","step_round":1,"set":"9c01",)"
                R"("default_microseconds":[912.5,913],)"
                R"("tuned_microseconds":[901,0.3333333333333333],"watts":690})"
                "\n");
}

TEST_F(StepLineTest, HasSixtyProblemsWithLongNames) {
  StepList list;
  for (int32_t i = 0; i < 60; ++i)
    list.choices.push_back({.problem = std::to_string(i) + std::string(800, 'n'),
                            .choices = {{"band_tiles", 16}, {"narrow_tiles", 2}, {"stages", 4}},
                            .text_digest = std::string(32, 'd'),
                            .certainty = 1.0 / (3 + i)});
  write_journal(path(), kSession, {list}, "step a");
  const auto journal = read_journal(path());
  ASSERT_TRUE(succeeded(journal));
  EXPECT_EQ(events_of(*journal), std::vector<Event>{list});
}

TEST_F(StepLineTest, NamesLineAndFieldOfWhatIsWrong) {
  const auto choice = [&](std::string_view certainty) {
    return message_for(R"("step_choices":[{"problem":"p","choices":{},"certainty":)" +
                       std::string(certainty) + "}]}");
  };
  EXPECT_EQ(choice("0.5"), "no error");
  EXPECT_EQ(choice("-0.1"), ":2: $.step_choices[0].certainty: got -0.1, wanted 0 to 1");
  EXPECT_EQ(choice("1e300"), ":2: $.step_choices[0].certainty: got 1e300, wanted 0 to 1");
  EXPECT_EQ(choice("null"), ":2: $.step_choices[0].certainty: got null, wanted a number");
  EXPECT_EQ(message_for(R"("step_choices":{}})"),
            ":2: $.step_choices: got an object, wanted an array");
  EXPECT_EQ(message_for(R"("step_choices":[{}]})"), ":2: $.step_choices[0].problem: missing key");
  EXPECT_EQ(message_for(R"("step_choices":[{"problem":"p","choices":{},"certainty":0},)"
                        R"({"problem":"p","choices":{},"certainty":0}]})"),
            ":2: $.step_choices[1]: got \"p\" again, wanted each problem once");
  const auto times = [&](std::string_view usual, std::string_view tuned) {
    return message_for(R"("step_round":1,"set":"0","default_microseconds":)" + std::string(usual) +
                       R"(,"tuned_microseconds":)" + std::string(tuned) + "}");
  };
  EXPECT_EQ(times("[1,1]", "[1,1]"), "no error");
  EXPECT_EQ(times("[1]", "[1,1]"), ":2: $.default_microseconds: got 1 times, wanted 2");
  EXPECT_EQ(times("[1,1]", "[1,1,1]"), ":2: $.tuned_microseconds: got 3 times, wanted 2");
  EXPECT_EQ(times("[1,-1]", "[1,1]"),
            ":2: $.default_microseconds[1]: got -1, wanted 1e-06 to 86400000000");
  EXPECT_EQ(times("[1,1]", "[1e99,1]"),
            ":2: $.tuned_microseconds[0]: got 1e99, wanted 1e-06 to 86400000000");
  EXPECT_EQ(times("[1,1]", "[null,1]"), ":2: $.tuned_microseconds[0]: got null, wanted a number");
  EXPECT_EQ(message_for(R"("step_round":0})"), ":2: $.step_round: got 0, wanted 1 to 2147483647");
  EXPECT_EQ(message_for(R"("step_round":1})"), ":2: $.set: missing key");
}

}  // namespace
}  // namespace moejit::tune
