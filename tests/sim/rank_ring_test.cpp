// SPDX-License-Identifier: Apache-2.0
//
// Rank 0 sends items to rank 1 through two slots in rank 1's memory. A flag tells of an item, and a
// flag in rank 0's memory that a slot is free again.

#include "tests/sim/support/rank_words.h"

#include <regex>

namespace moejit::runtime {
namespace {

constexpr const char* kRing = R"(
MOEJIT_KERNEL(32, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  const auto taken = global(params.words[0]);
  const auto sent = global(params.words[1]);
  const auto slots = global(params.words[1]) + (4 + t % 4);
  uint32_t sum = 0;
  for (int32_t i = 1; i <= 6; ++i) {
    if (params.rank == 0) {
      if (t == 0 && i > 2) wait_system(as<const uint32_t>(taken), i - 2, 0);
      sync_warp();
      if (t < 4) store(slots + 4 * (i % 2), static_cast<uint32_t>(4 * i + t));
      sync_warp();
      if (t == 0) store_release_system(sent, static_cast<uint32_t>(i));
    } else {
      if (t == 0) wait_system(as<const uint32_t>(sent), i, 0);
      sync_warp();
      if (t < 4) sum += load(slots + 4 * (i % 2));
      sync_warp();
      if (t == 0) store_release_system(taken, static_cast<uint32_t>(i));
    }
  }
  if (params.rank == 1 && t < 4) store(global(params.own) + t, sum);
}
)";
constexpr uint64_t kSeedsOfRing = 40;

bool is_right(const RankWords& result) {
  for (uint32_t t = 0; t < 4; ++t) {
    if (result.own[1][t] != 4 * 21 + 6 * t) return false;
  }
  return true;
}

// Counts the seeds with a report like each pattern, of the ring with a line changed, and behind
// these the seeds with wrong sums. Where rank 1 takes nothing before rank 0 has sent everything,
// all accesses are ordered, and only the sums tell.
std::vector<int32_t> times_caught(const std::string& from, const std::string& to,
                                  const std::vector<std::string>& patterns) {
  std::string text = kRing;
  text.replace(text.find(from), from.size(), to);
  std::vector<int32_t> times(patterns.size() + 1);
  for (uint64_t seed = 0; seed < kSeedsOfRing; ++seed) {
    const auto result = run_on_two_ranks(text, seed);
    if (result.has_value()) {
      times.back() += is_right(*result) ? 0 : 1;
      continue;
    }
    bool is_known = false;
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      const bool is_like = std::regex_search(result.error().message, std::regex(patterns[i]));
      times[i] += is_like ? 1 : 0;
      is_known |= is_like;
    }
    EXPECT_TRUE(is_known) << result.error().message;
  }
  return times;
}

const char* const kWritesWhatWasRead =
    "rank 0, kernel test_kernel, CTA 0, thread [0-3], test_kernel.cu:12: writes 4 bytes of memory "
    "of rank 1, of which byte [0-9]+ of words was read by rank 1, kernel test_kernel, CTA 0, "
    "thread "
    "[0-3] at test_kernel.cu:18: no release and acquire of a flag orders the two";
const char* const kReadsWhatIsWritten =
    "rank 1, kernel test_kernel, CTA 0, thread [0-3], test_kernel.cu:18: reads 4 bytes of memory "
    "of "
    "rank 1, of which byte [0-9]+ of words was written by rank 0, kernel test_kernel, CTA 0, "
    "thread "
    "[0-3] at test_kernel.cu:12: no release and acquire of a flag orders the two";

TEST(RankRing, PassesItemsThroughTwoSlots) {
  for (uint64_t seed = 0; seed < kSeedsOfRing; ++seed) {
    const auto result = run_on_two_ranks(kRing, seed);
    ASSERT_TRUE(result.has_value()) << to_string(result.error());
    EXPECT_TRUE(is_right(*result));
  }
}

TEST(RankRing, ReportsASlotThatIsFilledBeforeItIsFree) {
  const auto times = times_caught("i > 2)", "i > 6)", {kWritesWhatWasRead, kReadsWhatIsWritten});
  EXPECT_GT(times[0], 0);
  EXPECT_GT(times[1], 0);
  EXPECT_GE(times[0] + times[1], 10);
  EXPECT_GE(times[0] + times[1] + times[2], 36);
}

TEST(RankRing, ReportsAWaitForAnOlderItem) {
  const auto times =
      times_caught("taken), i - 2", "taken), i - 3", {kWritesWhatWasRead, kReadsWhatIsWritten});
  EXPECT_GE(times[0] + times[1], 10);
  EXPECT_GE(times[0] + times[1] + times[2], 36);
}

// Where rank 0 is always two items ahead, the two slots hold the same items in another order, and
// nothing is wrong.
TEST(RankRing, ReportsTheWrongSlot) {
  const auto times = times_caught("load(slots + 4 * (i % 2))", "load(slots + 4 * ((i + 1) % 2))",
                                  {kWritesWhatWasRead, kReadsWhatIsWritten});
  EXPECT_GE(times[0] + times[1], 10);
}

}  // namespace
}  // namespace moejit::runtime
