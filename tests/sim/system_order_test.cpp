// SPDX-License-Identifier: Apache-2.0
//
// What two ranks see of each other: stores to a peer in any order, flags that order them, kernels
// that poll and look at the timer.

#include "tests/sim/support/rank_words.h"

namespace moejit::runtime {
namespace {

// Rank 0 stores two words to rank 1, which reads them the other way round.
constexpr const char* kTwoStores = R"(
MOEJIT_KERNEL(32, 1, test_kernel, Params) {
  if (thread_index() != 0) return;
  const auto first = global(params.words[1]);
  const auto second = first + 1;
  if (params.rank == 0) {
    store(first, 1u);
    FENCE
    store(second, 1u);
    return;
  }
  for (int32_t i = 0; i < 20; ++i) {
    const uint32_t later = load_acquire_system(as<const uint32_t>(second));
    const uint32_t earlier = load_acquire_system(as<const uint32_t>(first));
    if (later == 1 && earlier == 0) store(global(params.own), 1u);
  }
}
)";

int32_t times_out_of_order(const std::string& fence, int32_t seeds) {
  std::string text = kTwoStores;
  text.replace(text.find("FENCE"), 5, fence);
  int32_t times = 0;
  for (int32_t seed = 0; seed < seeds; ++seed) {
    const auto result = run_on_two_ranks(text, static_cast<uint64_t>(seed));
    EXPECT_TRUE(result.has_value()) << to_string(result.error());
    if (!result.has_value()) return -1;
    EXPECT_EQ(result->words[1][0], 1u);
    EXPECT_EQ(result->words[1][1], 1u);
    times += static_cast<int32_t>(result->own[1][0]);
  }
  return times;
}

TEST(SystemOrder, StoresToAPeerArriveInAnyOrderWithoutAFence) {
  EXPECT_GT(times_out_of_order("", 200), 0);
}

TEST(SystemOrder, AFenceKeepsStoresToAPeerInOrder) {
  EXPECT_EQ(times_out_of_order("fence_system();", 200), 0);
}

// What a rank learned from one peer it passes on with its own flags, here back to that peer.
TEST(SystemOrder, FlagsPassOnWhatWasAcquired) {
  constexpr const char* kThroughAThird = R"(
MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  const auto here = global(params.words[params.rank]);
  const auto there = global(params.words[1 - params.rank]);
  if (params.rank == 0) {
    if (t == 5) store(there + 8, 7u);
    sync_cta();
    if (t == 0) store_release_system(there, 1u);
    if (t == 33) wait_system(as<const uint32_t>(here), 1u, 0);
    sync_cta();
    if (t == 40) store(global(params.own), load(here + 8) + load(there + 8));
  } else {
    if (t == 2) wait_system(as<const uint32_t>(here), 1u, 0);
    sync_cta();
    if (t == 40) store(there + 8, load(here + 8) + 1);
    sync_cta();
    if (t == 63) store_release_system(there, 1u);
  }
}
)";
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const auto result = run_on_two_ranks(kThroughAThird, seed, 1, 64);
    ASSERT_TRUE(result.has_value()) << to_string(result.error());
    EXPECT_EQ(result->own[0][0], 15u);
  }
}

// An acquisition is known to the warp only behind a barrier.
TEST(SystemOrder, OtherLanesNeedABarrierBehindAnAcquisition) {
  constexpr const char* kLanes = R"(
MOEJIT_KERNEL(32, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  const auto word = global(params.words[1]);
  if (params.rank == 0) {
    if (t == 0) store(word + 8, 7u);
    if (t == 0) store_release_system(word, 1u);
    return;
  }
  if (t == 0) wait_system(as<const uint32_t>(word), 1u, 0);
  ballot(true);
  BARRIER
  if (t == 9) store(global(params.own), load(word + 8));
}
)";
  std::string with = kLanes, without = kLanes;
  with.replace(with.find("BARRIER"), 7, "sync_warp();");
  without.replace(without.find("BARRIER"), 7, "");
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto right = run_on_two_ranks(with, seed);
    ASSERT_TRUE(right.has_value()) << to_string(right.error());
    EXPECT_EQ(right->own[1][0], 7u);
    const auto wrong = run_on_two_ranks(without, seed);
    ASSERT_FALSE(wrong.has_value());
    ASSERT_NE(
        wrong.error().message.find(
            "rank 1, kernel test_kernel, CTA 0, thread 9, test_kernel.cu:13: reads 4 bytes of "
            "memory of rank 1, of which byte 32 of words was written by rank 0, kernel "
            "test_kernel, CTA 0, thread 0 at test_kernel.cu:6: no release and acquire"),
        std::string::npos)
        << wrong.error().message;
  }
}

// Copies do not see what a thread has acquired, unless a fence for them is behind that, by any
// thread that a barrier orders before the copy.
TEST(SystemOrder, CopiesNeedAFenceBehindAnAcquisition) {
  constexpr const char* kCopies = R"(
MOEJIT_KERNEL(32, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  const auto word = global(params.words[1]);
  if (params.rank == 0) {
    if (t < 4) store(word + 8 + t, 7u);
    sync_cta();
    if (t == 0) store_release_system(word, 1u);
    return;
  }
  const Mbarrier barrier = shared<uint64_t>(0);
  const auto row = shared<Bytes16>(128);
  if (t == 9) init_mbarrier(barrier, 1);
  if (t == 9) fence_mbarrier_init();
  BEFORE
  if (t == 0) wait_system(as<const uint32_t>(word), 1u, 0);
  BEHIND
  sync_cta();
  COPYING
  if (t == 9) {
    arrive_expecting(barrier, 16);
    load_bulk(row, as<const Bytes16>(word + 8), 16, barrier);
  }
  wait(barrier, 0);
  if (t == 3) store(global(params.own), load(as<uint32_t>(row) + 3));
}
)";
  const std::string fence = "fence_proxy_async_global();";
  struct Case {
    std::string before, behind, copying;
    bool is_right;
  };
  for (const Case& of :
       {Case{"", "", fence, true}, Case{"", fence, "", true}, Case{"", "", "", false},
        Case{fence, "", "", false}, Case{"", "if (t == 5) " + fence, "", false},
        Case{"", "", "if (t == 5) " + fence, false}}) {
    std::string text = kCopies;
    text.replace(text.find("BEFORE"), 6, of.before);
    text.replace(text.find("BEHIND"), 6, of.behind);
    text.replace(text.find("COPYING"), 7, of.copying);
    for (uint64_t seed = 0; seed < 10; ++seed) {
      const auto result = run_on_two_ranks(text, seed);
      ASSERT_EQ(result.has_value(), of.is_right)
          << text << (result.has_value() ? "" : to_string(result.error()));
      if (of.is_right) {
        EXPECT_EQ(result->own[1][0], 7u);
        continue;
      }
      EXPECT_NE(result.error().message.find("no fence_proxy_async_global orders copies"),
                std::string::npos)
          << result.error().message;
    }
  }
}

// Rank 1 polls by itself and gives up by the timer; rank 0 lets 5 ms pass first, by the timer too.
TEST(SystemOrder, KernelsMayPollAndReadTheTimer) {
  constexpr const char* kPolls = R"(
MOEJIT_KERNEL(32, 1, test_kernel, Params) {
  if (thread_index() != 0) return;
  const auto flag = global(params.words[1]);
  const uint64_t begin = global_nanoseconds();
  if (params.rank == 0) {
    while (global_nanoseconds() - begin < 5000000) {
    }
    store_release_system(flag, 1u);
    return;
  }
  uint32_t result = 1;
  while (load_acquire_system(as<const uint32_t>(flag)) == 0) {
    if (global_nanoseconds() - begin > LIMIT) {
      result = 2;
      break;
    }
  }
  store(global(params.own), result);
}
)";
  for (const bool is_patient : {true, false}) {
    std::string text = kPolls;
    text.replace(text.find("LIMIT"), 5, is_patient ? "100000000" : "1000000");
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const auto result = run_on_two_ranks(text, seed);
      ASSERT_TRUE(result.has_value()) << to_string(result.error());
      EXPECT_EQ(result->own[1][0], is_patient ? 1u : 2u);
      EXPECT_GE(result->nanoseconds, 1'005'000'000u);
      EXPECT_LT(result->nanoseconds, 1'020'000'000u);
    }
  }
}

TEST(SystemOrder, PollingWithoutATimerIsADeadLockWhereNobodyRaisesTheFlag) {
  constexpr const char* kPolls = R"(
MOEJIT_KERNEL(32, 1, test_kernel, Params) {
  if (thread_index() != 0 || params.rank == 0) return;
  while (load_acquire_system(global<const uint32_t>(params.words[1])) == 0) {
  }
}
)";
  const auto result = run_on_two_ranks(kPolls, 1);
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().message.find(
                "rank 1, kernel test_kernel, CTA 0: 1 thread (the first is 0) waits in "
                "load_acquire_system for another value in byte 0 of words of rank 1, where 0x0 is, "
                "which no rank has raised, at test_kernel.cu:4"),
            std::string::npos)
      << result.error().message;
}

// Ordinary loads of a flag never end by themselves, and race with the store of the flag.
TEST(SystemOrder, OrdinaryLoadsOfAFlagRaceWithIt) {
  constexpr const char* kSpins = R"(
MOEJIT_KERNEL(32, 1, test_kernel, Params) {
  if (thread_index() != 0) return;
  if (params.rank == 0) return store_release_system(global(params.words[1]), 1u);
  while (load(global(params.words[1])) == 0) {
  }
}
)";
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto result = run_on_two_ranks(kSpins, seed);
    ASSERT_FALSE(result.has_value());
    EXPECT_NE(result.error().message.find("test_kernel.cu:5: reads 4 bytes of memory of rank 1"),
              std::string::npos)
        << result.error().message;
  }
}

// Scope .gpu, as store_release_own() has it, ends at the rank.
TEST(SystemOrder, AFlagOfAnotherRankIsNoOwnFlag) {
  for (const std::string use : {"store_release_own(global(params.words[1]), 1u)",
                                "wait_own(global<const uint32_t>(params.words[1]), 0u)"}) {
    const std::string text =
        "MOEJIT_KERNEL(32, 1, test_kernel, Params) {\n"
        "  if (thread_index() == 0 && params.rank == 0) " +
        use + ";\n}\n";
    const auto result = run_on_two_ranks(text.c_str(), 1);
    ASSERT_FALSE(result.has_value());
    EXPECT_NE(
        result.error().message.find("of rank 1 with scope .gpu, which does not reach another"),
        std::string::npos)
        << result.error().message;
  }
}

TEST(SystemOrder, AFlagLiesInMemoryOfTheGroup) {
  const auto result = run_on_two_ranks(
      "MOEJIT_KERNEL(32, 1, test_kernel, Params) {\n"
      "  store_release_system(global(params.own), 1u);\n"
      "}\n",
      1);
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().message.find("byte 0 of own, which is not memory of the group"),
            std::string::npos)
      << result.error().message;
}

}  // namespace
}  // namespace moejit::runtime
