// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/nearest_name.h"

#include <array>
#include <gtest/gtest.h>
#include <string>

namespace moejit {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"hidden", "top_k", "experts", "local_experts"};

TEST(NearestName, FindsAReplacedALeftOutAndAnInsertedLetter) {
  EXPECT_EQ(nearest_name("hiddem", kNames), "hidden");
  EXPECT_EQ(nearest_name("topk", kNames), "top_k");
  EXPECT_EQ(nearest_name("expertss", kNames), "experts");
}

TEST(NearestName, CountsSwappedNeighboursAsOneMistake) {
  constexpr std::array<std::string_view, 2> kTwo = {"abxx", "abdc"};
  EXPECT_EQ(nearest_name("abcd", kTwo), "abdc");
}

TEST(NearestName, TakesTheFirstOfEquallyNearNames) {
  constexpr std::array<std::string_view, 2> kTwo = {"w1", "w2"};
  EXPECT_EQ(nearest_name("w3", kTwo), "w1");
}

TEST(NearestName, GivesNothingWhereNothingIsSimilar) {
  EXPECT_EQ(nearest_name("qqqqqq", kNames), "");
  EXPECT_EQ(nearest_name("", kNames), "");
  EXPECT_EQ(nearest_name("hidden", {}), "");
}

TEST(NearestName, DoesNotSpendTimeOnVeryLongNames) {
  EXPECT_EQ(nearest_name(std::string(10'000'000, 'x'), kNames), "");
}

}  // namespace
}  // namespace moejit
