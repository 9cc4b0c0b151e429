// SPDX-License-Identifier: Apache-2.0
// Which CTAs of an exchange work where it takes a few of the SMs, of which two neighboring CTAs
// share each.
#include "tests/sim/support/rank_words.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace moejit::runtime {
namespace {

// Counts CTAs that work, that send, and that have ended; units that are sent; and what the last CTA
// does.
std::string counts_ctas(const std::string& sms) {
  return R"(
#include "moejit_device/exchange/unit_walk.cuh"
MOEJIT_KERNEL(32, 1, test_kernel, Params) {
  const moejit::device::UnitWalk<moejit::device::)" +
         sms + R"(> walk(params.words[params.rank]);
  const auto own = global(params.own);
  const auto count = [&](int32_t what) {
    if (thread_index() == 0) fetch_add(own + what, 1u);
  };
  if (walk.works()) {
    count(0);
    if (walk.sends()) count(1);
    walk.send(10, [&](int64_t) { count(2); });
    walk.for_each_part([&](int32_t, int32_t) { count(3); });
  }
  walk.end([&] { fetch_add(own + 4, 1u); });
}
)";
}

std::vector<uint32_t> counted(const std::string& sms, uint64_t seed) {
  const auto result = run_on_two_ranks(counts_ctas(sms), seed, 8);
  EXPECT_TRUE(result.has_value()) << result.error().message;
  if (!result) return {};
  for (const std::vector<uint32_t>& words : result->words)
    EXPECT_EQ(std::ranges::count(words, 0u), std::ssize(words)) << "words are 0 behind the kernel";
  EXPECT_EQ(result->own[0], result->own[1]);
  return {result->own[0].begin(), result->own[0].begin() + 5};
}

TEST(KernelSms, TheFirstOnesWorkAndNoOthers) {
  for (uint64_t seed = 0; seed < 20; ++seed)
    EXPECT_EQ(counted("FirstSms<2, 1>", seed), (std::vector<uint32_t>{4, 2, 10, 64, 1})) << seed;
}

TEST(KernelSms, MoreThanThereAreAreAll) {
  for (uint64_t seed = 0; seed < 20; ++seed)
    EXPECT_EQ(counted("FirstSms<9, 3>", seed), (std::vector<uint32_t>{8, 6, 10, 64, 1})) << seed;
}

TEST(KernelSms, AllWorkIfNoneAreLeftToOthers) {
  for (uint64_t seed = 0; seed < 20; ++seed)
    EXPECT_EQ(counted("AllSms<3>", seed), (std::vector<uint32_t>{8, 6, 10, 8, 1})) << seed;
}

}  // namespace
}  // namespace moejit::runtime
