// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/nearest_name.h"

#include <array>
#include <gtest/gtest.h>
#include <string>

namespace moejit {
namespace {

constexpr std::array<std::string_view, 4> kKnownNames = {"hidden", "top_k", "experts",
                                                         "local_experts"};

TEST(NearestName, FindsAReplacedALeftOutAndAnInsertedLetter) {
  EXPECT_EQ(nearest_name("hiddem", kKnownNames), "hidden");
  EXPECT_EQ(nearest_name("topk", kKnownNames), "top_k");
  EXPECT_EQ(nearest_name("expertss", kKnownNames), "experts");
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
  EXPECT_EQ(nearest_name("qqqqqq", kKnownNames), "");
  EXPECT_EQ(nearest_name("", kKnownNames), "");
  EXPECT_EQ(nearest_name("hidden", {}), "");
}

TEST(NearestName, DoesNotSpendTimeOnVeryLongNames) {
  EXPECT_EQ(nearest_name(std::string(10'000'000, 'x'), kKnownNames), "");
}

}  // namespace
}  // namespace moejit
