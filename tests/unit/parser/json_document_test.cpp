// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/json_document.h"

#include <cstddef>
#include <gtest/gtest.h>

namespace moejit {
namespace {

Result<JsonDocument> parse(std::string_view text, int32_t max_depth = 64) {
  return parse_json(text, {.source_name = "test.json", .max_depth = max_depth});
}

std::string message_of(std::string_view text) {
  const Result<JsonDocument> document = parse(text);
  return document ? "no error" : document.error().message;
}

TEST(JsonDocument, ReadsEveryKindOfValue) {
  const Result<JsonDocument> document = parse(R"({"a": [null, true, -7, 2.50, "x\u00e9"]})");
  ASSERT_TRUE(document);
  const JsonValue& root = document->root;
  ASSERT_EQ(root.kind, JsonKind::kObject);
  ASSERT_EQ(root.members.size(), 1u);
  EXPECT_EQ(root.members[0].key, "a");
  const std::vector<JsonValue>& elements = root.members[0].value.elements;
  ASSERT_EQ(elements.size(), 5u);
  EXPECT_EQ(elements[0].kind, JsonKind::kNull);
  EXPECT_TRUE(elements[1].boolean);
  EXPECT_EQ(elements[2].integer, -7);
  EXPECT_EQ(elements[3].text, "2.50");
  EXPECT_EQ(elements[3].integer, std::nullopt);
  EXPECT_EQ(elements[4].text, "x\xC3\xA9");
}

TEST(JsonDocument, KeepsTheOrderOfMembers) {
  const Result<JsonDocument> document = parse(R"({"z": 1, "a": 2, "m": 3})");
  ASSERT_TRUE(document);
  EXPECT_EQ(document->root.members[0].key, "z");
  EXPECT_EQ(document->root.members[2].key, "m");
}

TEST(JsonDocument, KnowsTheLineOfEveryValue) {
  const Result<JsonDocument> document = parse("{\n\"a\": 1,\n\"b\":\n[2\n,3\n]}");
  ASSERT_TRUE(document);
  EXPECT_EQ(document->root.line, 1);
  EXPECT_EQ(document->root.members[0].value.line, 2);
  const JsonValue& b = document->root.members[1].value;
  EXPECT_EQ(b.line, 4);
  EXPECT_EQ(b.elements[0].line, 4);
  EXPECT_EQ(b.elements[1].line, 5);
}

TEST(JsonDocument, KeepsIntegersUpToTheEndsOfInt64AndTheTextOfLargerOnes) {
  const Result<JsonDocument> document = parse(
      "[9223372036854775807, -9223372036854775808, 9223372036854775808, "
      "18446744073709551616]");
  ASSERT_TRUE(document);
  const std::vector<JsonValue>& numbers = document->root.elements;
  EXPECT_EQ(numbers[0].integer, INT64_MAX);
  EXPECT_EQ(numbers[1].integer, INT64_MIN);
  EXPECT_EQ(numbers[2].integer, std::nullopt);
  EXPECT_EQ(numbers[2].text, "9223372036854775808");
  EXPECT_EQ(numbers[3].integer, std::nullopt);
  EXPECT_EQ(numbers[3].text, "18446744073709551616");
}

TEST(JsonDocument, CountsColumnsInCharactersNotBytes) {
  EXPECT_EQ(message_of("[\"\xC3\xA9\xC3\xA9\", x]").substr(0, 15), "test.json:1:8: ");
}

TEST(JsonDocument, FindsDuplicatesAmongManyKeysAndNamesTheFirstLine) {
  std::string text = "{\n\"first\": 0,\n";
  for (int i = 0; i < 20'000; ++i) text += "\"key" + std::to_string(i) + "\": 0,\n";
  text += "\"first\": 1}";
  EXPECT_EQ(message_of(text), "test.json:20003: $.first: duplicate key, first given on line 2");
}

TEST(JsonDocument, ComparesKeysAfterDecodingThem) {
  EXPECT_EQ(message_of(R"({"a": 1, "\u0061": 2})"),
            "test.json:1: $.a: duplicate key, first given on line 1");
}

TEST(JsonDocument, AllowsTheSameKeyInDifferentObjects) {
  EXPECT_TRUE(parse(R"({"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}]})"));
}

TEST(JsonDocument, AllowsNestingUpToTheLimitOnly) {
  EXPECT_TRUE(parse("[[[]]]", 3));
  EXPECT_FALSE(parse("[[[[]]]]", 3));
  const std::string deep(1'000'000, '[');
  EXPECT_EQ(
      message_of(deep),
      "test.json:1: nested too deeply: got more than 64 arrays and objects within each other");
}

TEST(JsonDocument, GivesErrorsTheStageThatWasAskedFor) {
  const Result<JsonDocument> document =
      parse_json("{", {.source_name = "header", .stage = Stage::kFile});
  ASSERT_FALSE(document);
  EXPECT_EQ(document.error().stage, Stage::kFile);
}

TEST(JsonDocument, KeepsMessagesShortWhateverTheInput) {
  EXPECT_LT(message_of("[" + std::string(1'000'000, 'x')).size(), 300u);
  EXPECT_LT(message_of("[\"" + std::string(1'000'000, 'x')).size(), 300u);
}

TEST(JsonDocument, CountsValuesOfAllKinds) {
  const std::string text = R"({"a": [1, "b", null], "c": {}})";  // with the root six
  EXPECT_TRUE(parse_json(text, {.source_name = "test.json", .max_values = 6}));
  const Result<JsonDocument> more = parse_json(text, {.source_name = "test.json", .max_values = 5});
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code, ErrorCode::kInvalidValue);
  EXPECT_EQ(more.error().message, "test.json:1: got more than 5 values, wanted at most 5");
}

TEST(JsonDocument, RefusesTooManyBytesBeforeItReadsThem) {
  EXPECT_TRUE(parse_json("[1]", {.source_name = "test.json", .max_bytes = 3}));
  const Result<JsonDocument> more =
      parse_json("]]]]", {.source_name = "test.json", .max_bytes = 3});
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().message, "test.json: got 4 bytes, wanted at most 3");
}

// Every prefix of a valid text is refused, none crashes.
TEST(JsonDocument, RefusesEveryTruncation) {
  const std::string text = R"({"a": [1, -2.5e3, "x\u00e9\n", {"b": null}], "c": true})";
  ASSERT_TRUE(parse(text));
  for (std::size_t length = 0; length < text.size(); ++length)
    EXPECT_FALSE(parse(text.substr(0, length))) << text.substr(0, length);
}

TEST(EscapeForMessage, EscapesControlCharactersAndMalformedBytes) {
  EXPECT_EQ(escape_for_message("a\n\x1b[31m\xff\xC3\xA9\x7f"), "a\\x0a\\x1b[31m\\xff\xC3\xA9\\x7f");
}

TEST(EscapeForMessage, CutsLongText) {
  EXPECT_EQ(escape_for_message("abcdef", 3), "abc...");
  EXPECT_EQ(escape_for_message("abc", 3), "abc");
  EXPECT_EQ(quote_for_message("abcdef", 3), "\"abc...\"");
}

TEST(JsonPath, QuotesKeysThatAreNoPlainNames) {
  EXPECT_EQ(json_path_of_member("$", "top_k"), "$.top_k");
  EXPECT_EQ(json_path_of_member("$.a", "odd key\n"), "$.a[\"odd key\\x0a\"]");
  EXPECT_EQ(json_path_of_member("$", ""), "$[\"\"]");
}

}  // namespace
}  // namespace moejit
