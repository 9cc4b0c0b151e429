// SPDX-License-Identifier: Apache-2.0
//
// Ranks that wait: for flags that come late or never, for peers that are dead, for room on the SMs;
// and the time that passes then.

#include "tests/sim/support/exchange.h"

#include <regex>

namespace moejit::runtime {
namespace {

bool has(const std::string& message, const std::string& pattern) {
  return std::regex_search(message, std::regex(pattern));
}

constexpr uint32_t kTimeout = 20'000'000;

TEST(RankWaits, EndWithAStatusWhereAPeerIsSilent) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto result = run_exchange(
        {.ranks = 3, .seed = seed, .epochs = 1, .timeout = kTimeout, .silent_rank = 1});
    ASSERT_TRUE(result.has_value()) << to_string(result.error());
    EXPECT_EQ(result->status[0] & 2u, 2u);
    EXPECT_EQ(result->status[2] & 2u, 2u);
    EXPECT_GE(result->nanoseconds, 1'000'000'000 + kTimeout);
    EXPECT_LE(result->nanoseconds, 1'000'000'000 + 3 * uint64_t{kTimeout});
  }
}

TEST(RankWaits, EndWhereverAPeerDies) {
  int32_t silent = 0;
  int32_t complete = 0;
  for (int64_t run = 0; run < 80; ++run) {
    const int64_t parts = run / 4;
    const auto result = run_exchange({.ranks = 2,
                                      .seed = static_cast<uint64_t>(run),
                                      .epochs = 1,
                                      .timeout = kTimeout,
                                      .killed_rank = 1,
                                      .killed_after = parts});
    ASSERT_TRUE(result.has_value()) << parts << ": " << to_string(result.error());
    EXPECT_TRUE(result->is_right);
    (result->status[0] != 0 ? silent : complete) += 1;
  }
  EXPECT_GT(silent, 10);
  EXPECT_GT(complete, 0);
}

TEST(RankWaits, PassNoTimeWhileAnybodyCanGoOn) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto result = run_exchange({.ranks = 4, .seed = seed, .timeout = 1});
    ASSERT_TRUE(result.has_value()) << to_string(result.error());
    EXPECT_TRUE(result->is_right);
    EXPECT_EQ(result->status, std::vector<uint32_t>(4, 0));
    EXPECT_EQ(result->nanoseconds, 1'000'000'000u);
  }
}

TEST(RankWaits, AreADeadLockWhereAPeerLaunchesNothing) {
  const auto result = run_exchange({.ranks = 2, .epochs = 1, .silent_rank = 1});
  ASSERT_FALSE(result.has_value());
  const std::string& message = result.error().message;
  const std::string place = "receive.cu:" + std::to_string(line_of("receive", {}, "wait_system"));
  EXPECT_TRUE(has(message,
                  "dead-lock of the group: rank 0, kernel receive, CTA [0-2]:.*"
                  "1 thread \\(the first is 0\\) waits in wait_system for 0x1 in byte "
                  "[0-9]+ of data_flags of rank 0, where 0x0 is, which no rank has "
                  "raised, at " +
                      place))
      << message;
  EXPECT_TRUE(has(message, "rank 1 has nothing to run")) << message;
}

TEST(RankWaits, AreADeadLockThatNamesTheLastWriter) {
  const auto result = run_exchange({.ranks = 2, .epochs = 2, .epochs_of = {2, 1}});
  ASSERT_FALSE(result.has_value());
  const std::string& message = result.error().message;
  const std::string place =
      "push.cu:" + std::to_string(line_of("push", {}, "store_relaxed_system"));
  EXPECT_TRUE(has(message,
                  "rank 0, kernel receive, CTA .* waits in wait_system for 0x2 in .* where "
                  "0x1 is, which rank 1, kernel push, CTA [01], thread [01] wrote last at " +
                      place))
      << message;
}

// Waiting CTAs of a kernel that is launched first fill the SMs, so the kernel that would raise
// their flags finds no room.
TEST(RankWaits, AreADeadLockWhereThoseThatWaitFillTheMachine) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    ExchangeOptions options{.ranks = 4, .seed = seed, .epochs = 1, .is_receive_first = true};
    const auto few = run_exchange(options);
    ASSERT_TRUE(few.has_value()) << to_string(few.error());
    EXPECT_TRUE(few->is_right);
    options.receive_ctas = 9;
    const auto many = run_exchange(options);
    ASSERT_FALSE(many.has_value());
    EXPECT_TRUE(has(many.error().message,
                    "2 of the 2 CTAs of kernel push find no room on the SMs "
                    "of rank [0-3] beside those that wait"))
        << many.error().message;
  }
}

}  // namespace
}  // namespace moejit::runtime
