// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/json_text.h"

#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

namespace moejit {
namespace {

Json sample() {
  Json list = Json::array();
  list.push_back("x");
  list.push_back({{"n", -3}});
  list.push_back(Json());
  Json object{{"b", true}, {"a", list}, {"none", Json::array()}, {"empty", Json::object()}};
  object["late"] = std::vector<std::string>{"p", "q"};
  object["b"] = uint64_t{18446744073709551615U};
  return object;
}

TEST(JsonText, IsOneLineWithoutBlanksOrOneOfEachValue) {
  EXPECT_EQ(sample().dump(),
            R"({"b":18446744073709551615,"a":["x",{"n":-3},null],"none":[],"empty":{},)"
            R"("late":["p","q"]})");
  EXPECT_EQ(sample().dump(2), R"({
  "b": 18446744073709551615,
  "a": [
    "x",
    {
      "n": -3
    },
    null
  ],
  "none": [],
  "empty": {},
  "late": [
    "p",
    "q"
  ]
})");
}

TEST(JsonText, EscapesStringsAndReplacesWhatIsNotUtf8) {
  EXPECT_EQ(json_string("a\"\\\n\x01/\x7f\u00e4"), "\"a\\\"\\\\\\n\\u0001/\x7f\u00e4\"");
  EXPECT_EQ(json_string("a\xff"), "\"a\ufffd\"");
  EXPECT_EQ(Json({{"k\"", std::string("v\0w", 3)}}).dump(), R"({"k\"":"v\u0000w"})");
}

TEST(JsonText, HasTheShortestTextOfANumber) {
  EXPECT_EQ(json_number(690.0).dump(), "690");
  EXPECT_EQ(json_number(0.1).dump(), "0.1");
  EXPECT_EQ(json_number(1.0 / 3.0).dump(), "0.3333333333333333");
  EXPECT_EQ(json_number(std::numeric_limits<double>::quiet_NaN()).dump(), "null");
  EXPECT_EQ(json_number(-std::numeric_limits<double>::infinity()).dump(), "null");
}

TEST(JsonText, OfAParsedDocumentIsThatDocument) {
  const std::string text = R"({"a":[1,2.50,-3,1e-10],"b":{"c":"d"},"e":false})";
  EXPECT_EQ(Json(parse_json(text, {}).value().root).dump(), text);
}

TEST(JsonDocument, FindsMembersAndReadsStrings) {
  const JsonValue root = parse_json(R"({"a":["x","y"],"b":["x",1],"c":"x"})", {}).value().root;
  EXPECT_EQ(read_strings(*find_member(root, "a")), (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(read_strings(*find_member(root, "b")), std::nullopt);
  EXPECT_EQ(read_strings(*find_member(root, "c")), std::nullopt);
  EXPECT_EQ(find_member(root, "d"), nullptr);
  EXPECT_EQ(find_member(*find_member(root, "c"), "a"), nullptr);
}

}  // namespace
}  // namespace moejit
