// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/json_view.h"

#include <array>
#include <gtest/gtest.h>

namespace moejit {
namespace {

constexpr IntRange kSmall{.lowest = -2, .highest = 10};

class JsonViewTest : public testing::Test {
 protected:
  JsonView view(std::string_view text) {
    document_ = parse_json(text, {.source_name = "v.json"}).value();
    return JsonView(document_);
  }

  JsonDocument document_;
};

TEST_F(JsonViewTest, ReadsWholeNumbersWithinTheRange) {
  EXPECT_EQ(view("-2").read_int(kSmall), -2);
  EXPECT_EQ(view("10").read_int(kSmall), 10);
  EXPECT_FALSE(view("-3").read_int(kSmall));
  EXPECT_FALSE(view("11").read_int(kSmall));
}

TEST_F(JsonViewTest, TakesOnlyMultiplesWhereTheRangeSaysSo) {
  const IntRange range{.lowest = 16, .highest = 64, .multiple_of = 16};
  EXPECT_EQ(view("48").read_int(range), 48);
  const Result<int64_t> number = view("40").read_int(range);
  ASSERT_FALSE(number);
  EXPECT_EQ(number.error().message, "v.json:1: $: got 40, wanted a multiple of 16 from 16 to 64");
}

TEST_F(JsonViewTest, HintsAtTheNearestNumbers) {
  const IntRange range{.lowest = 16, .highest = 64, .multiple_of = 16};
  const auto hint = [&](const char* text) { return view(text).read_int(range).error().hint; };
  EXPECT_EQ(hint("40"), "nearest: 32, 48");
  EXPECT_EQ(hint("63"), "nearest: 48, 64");
  EXPECT_EQ(hint("65"), "nearest: 64");
  EXPECT_EQ(hint("-1"), "nearest: 16");
  EXPECT_EQ(hint("99999999999999999999"), "nearest: 64");
}

TEST_F(JsonViewTest, NamesSourceLinePathGotAndWanted) {
  const JsonView root = view("{\n\"a\": [1,\n99]}");
  const std::vector<JsonView> elements = root.at("a")->read_array().value();
  EXPECT_EQ(elements[1].read_int({.lowest = 0, .highest = 9, .bound_by = "digits"}).error().message,
            "v.json:3: $.a[1]: got 99, wanted 0 to 9 (digits)");
}

TEST_F(JsonViewTest, TellsAbsentMembersFromPresentOnes) {
  const JsonView root = view(R"({"a": null})");
  ASSERT_TRUE(root.find("a"));
  EXPECT_TRUE(root.find("a")->is_null());
  EXPECT_EQ(root.find("a")->key(), "a");
  EXPECT_FALSE(root.find("b"));
  EXPECT_EQ(root.at("b").error().code, ErrorCode::kMissingKey);
  EXPECT_EQ(root.at("b").error().message, "v.json:1: $.b: missing key");
}

TEST_F(JsonViewTest, ReadsTheStringOfAMember) {
  const JsonView root = view(R"({"a": "text", "b": 8})");
  EXPECT_EQ(root.read_string_at("a"), "text");
  EXPECT_EQ(root.read_string_at("b").error().message, "v.json:1: $.b: got 8, wanted a string");
  EXPECT_EQ(root.read_string_at("c").error().message, "v.json:1: $.c: missing key");
}

TEST_F(JsonViewTest, FindsNothingInWhatIsNoObject) {
  EXPECT_FALSE(view("[1]").find("a"));
  EXPECT_EQ(view("[1]").at("a").error().code, ErrorCode::kWrongType);
  EXPECT_EQ(view("[1]").read_members().error().message,
            "v.json:1: $: got an array, wanted an object");
}

TEST_F(JsonViewTest, ListsMembersInTheirOrder) {
  const JsonView root = view(R"({"b": 1, "a": 2})");
  const std::vector<JsonView> members = root.read_members().value();
  ASSERT_EQ(members.size(), 2u);
  EXPECT_EQ(members[0].key(), "b");
  EXPECT_EQ(members[1].path(), "$.a");
}

TEST_F(JsonViewTest, RefusesOtherTypesThanAsked) {
  EXPECT_EQ(view("1").read_bool().error().code, ErrorCode::kWrongType);
  EXPECT_EQ(view("1").read_string().error().message, "v.json:1: $: got 1, wanted a string");
  EXPECT_EQ(view("{}").read_array().error().message, "v.json:1: $: got an object, wanted an array");
  EXPECT_EQ(view("\"8\"").read_int(kSmall).error().code, ErrorCode::kWrongType);
  EXPECT_EQ(view("8.0").read_int(kSmall).error().code, ErrorCode::kWrongType);
  EXPECT_EQ(view("1e0").read_int(kSmall).error().code, ErrorCode::kWrongType);
}

TEST_F(JsonViewTest, ChoosesAmongNamesAndOffersTheNearest) {
  constexpr std::array<std::string_view, 2> kNames = {"forward", "backward"};
  EXPECT_EQ(view("\"backward\"").read_choice(kNames), 1u);
  const Result<std::size_t> choice = view("\"foward\"").read_choice(kNames);
  ASSERT_FALSE(choice);
  EXPECT_EQ(choice.error().message,
            "v.json:1: $: got \"foward\", wanted one of \"forward\", \"backward\"");
  EXPECT_EQ(choice.error().hint, "did you mean \"forward\"?");
}

TEST_F(JsonViewTest, NamesTheFirstUnknownKey) {
  constexpr std::array<std::string_view, 2> kKnown = {"alpha", "beta"};
  EXPECT_TRUE(view(R"({"beta": 1})").check_keys(kKnown));
  const Result<void> checked = view(R"({"alpha": 1, "betta": 2})").check_keys(kKnown);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().code, ErrorCode::kUnknownKey);
  EXPECT_EQ(checked.error().message, "v.json:1: $.betta: unknown key");
  EXPECT_EQ(checked.error().hint, "did you mean beta? known: alpha, beta");
}

}  // namespace
}  // namespace moejit
