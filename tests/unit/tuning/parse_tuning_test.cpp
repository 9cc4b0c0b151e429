// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/tuning/tuning_records.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

namespace moejit::compiler {
namespace {

std::string sentence(const Result<TuningRecord>& record) {
  return record ? "no error" : record.error().message;
}

// A record whose only entry has this text in the place of a member.
std::string with_entry(std::string_view members) {
  return fmt::format(
      R"({{"format": "moejit-tuning-1", "gpu": {{"name": "X", "arch": "sm_90a"}}, "entries": [{{{}}}]}})",
      members);
}
constexpr const char* kNumbers =
    R"("rounds": 8, "microseconds": 1, "default_microseconds": 2.5, "ratio": 0.4, )"
    R"("ratio_low": 0.39, "ratio_high": 0.41)";

TEST(TuningRecord, IsReadBackAsItWasWritten) {
  const TuningRecord record{.gpu = h200(),
                            .entries = {entry("gemm a", {{"band_tiles", 4}, {"stages", 3}}),
                                        entry("gemm b", {{"stages", 4}}, 16)}};
  const std::string text = to_json(record);
  const auto read = parse_tuning(text, "record");
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_EQ(read->gpu, record.gpu);
  ASSERT_EQ(read->entries.size(), 2U);
  EXPECT_EQ(read->entries[0].choices, record.entries[0].choices);
  EXPECT_EQ(read->entries[0].ratio, 0.9005);
  EXPECT_EQ(read->entries[1].rounds, 16);
  EXPECT_EQ(to_json(*read), text);
}

TEST(TuningRecord, IsWrittenInTheOrderOfTheProblems) {
  const TuningEntry a = entry("a", {}), b = entry("b", {});
  EXPECT_EQ(to_json(TuningRecord{.gpu = h200(), .entries = {a, b}}),
            to_json(TuningRecord{.gpu = h200(), .entries = {b, a}}));
}

TEST(TuningRecord, KeepsFieldsThatItDoesNotKnow) {
  const std::string text = with_entry(
      fmt::format(R"("problem": "p", "choices": {{}}, {}, "colour": [1, "blue"])", kNumbers));
  const auto read = parse_tuning(text.substr(0, text.size() - 1) + R"(, "note": null})", "record");
  ASSERT_TRUE(read) << to_string(read.error());
  const std::string written = to_json(*read);
  EXPECT_NE(written.find("\"colour\": [\n"), std::string::npos) << written;
  EXPECT_NE(written.find("\"note\": null"), std::string::npos) << written;
}

TEST(TuningRecord, LeavesOutTheStepsOfEarlierVersions) {
  const std::string text = to_json(TuningRecord{.gpu = h200(), .entries = {entry("p", {})}});
  const auto read =
      parse_tuning(text.substr(0, text.rfind('}')) + R"(, "steps": [{"step": "s"}]})", "record");
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_EQ(to_json(*read), text);
}

TEST(TuningRecord, NamesThePlaceOfAMistake) {
  EXPECT_EQ(sentence(parse_tuning("{}", "r.json")), "r.json:1: $.format: missing key");
  EXPECT_EQ(sentence(parse_tuning(R"({"format": "moejit-tuning-9"})", "r.json")),
            "r.json:1: $.format: got \"moejit-tuning-9\", wanted \"moejit-tuning-1\"");
  EXPECT_EQ(sentence(parse_tuning(with_entry(R"("problem": "p")"), "r.json")),
            "r.json:1: $.entries[0].choices: missing key");
  EXPECT_EQ(
      sentence(parse_tuning(with_entry(R"("problem": "p", "choices": {"stages": 1.5})"), "r.json")),
      "r.json:1: $.entries[0].choices.stages: got 1.5, wanted 0 to 1099511627776");
  EXPECT_EQ(sentence(parse_tuning(
                with_entry(R"("problem": "p", "choices": {}, "rounds": 8, "microseconds": -1)"),
                "r.json")),
            "r.json:1: $.entries[0].microseconds: got -1, wanted more than 0 and at most 1e+12");
}

TEST(TuningRecord, HasAProblemOnce) {
  const std::string one = fmt::format(R"("problem": "p", "choices": {{}}, {})", kNumbers);
  const auto read = parse_tuning(with_entry(one + "}, {" + one), "r.json");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message, "r.json:1: $.entries[1]: an entry before has the same problem");
}

TEST(TuningRecord, OfTooManyBytesIsRefusedBeforeItIsRead) {
  const auto read = parse_tuning(std::string(kMaxTuningBytes + 1, ' '), "r.json");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kInvalidValue);
}

TEST(ReadTunings, NamesAFileThatIsMissing) {
  const auto read = read_tunings("::/no/such/record.json");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kFileNotFound);
  EXPECT_NE(read.error().message.find("/no/such/record.json"), std::string::npos);
}

TEST(ReadTunings, ReturnsNothingWithoutPaths) {
  const auto read = read_tunings(":");
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, nullptr);
}

}  // namespace
}  // namespace moejit::compiler
