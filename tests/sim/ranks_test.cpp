// SPDX-License-Identifier: Apache-2.0
//
// A miniature of dispatch and combine (kernels/ranks) on 2, 4 and 8 simulated ranks, whose launches
// are under way at the same time.

#include "tests/sim/support/exchange.h"

namespace moejit::runtime {
namespace {

class Ranks : public testing::TestWithParam<int32_t> {};

TEST_P(Ranks, ExchangeTokensInAnyOrder) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const auto result = run_exchange({.ranks = GetParam(), .seed = seed});
    ASSERT_TRUE(result.has_value()) << "seed " << seed << ": " << to_string(result.error());
    EXPECT_TRUE(result->is_right) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Simulator, Ranks, testing::Values(1, 2, 4, 8));

TEST(RanksTest, GoOnWhereOneHasNoTokens) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto result = run_exchange({.ranks = 3, .seed = seed, .tokens = {9, 0, 5}});
    ASSERT_TRUE(result.has_value()) << "seed " << seed << ": " << to_string(result.error());
    EXPECT_TRUE(result->is_right) << "seed " << seed;
  }
}

}  // namespace
}  // namespace moejit::runtime
