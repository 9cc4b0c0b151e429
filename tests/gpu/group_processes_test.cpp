// SPDX-License-Identifier: Apache-2.0
// Groups of processes, one on each GPU: the bits of one process, and what becomes of the survivors
// when a rank is silent, stopped or killed.
#include "moejit_device/params/status_bits.h"
#include "tests/gpu/process_group.h"

#include <algorithm>
#include <csignal>
#include <unistd.h>

namespace moejit::testing {
namespace {

void sleep_ms(int64_t ms) {
  ::usleep(static_cast<useconds_t>(ms * 1000));  // NOLINT(concurrency-mt-unsafe)
}

// Runs tests with two, four and eight ranks.
class GroupProcesses : public ::testing::TestWithParam<int32_t> {
 protected:
  void SetUp() override {
    const std::string why_not = ProcessGroup::why_not(ranks());
    if (!why_not.empty()) GTEST_SKIP() << why_not;
  }
  static int32_t ranks() { return GetParam(); }
  // The ranks that a test is about: the last, and the first, which made the group's socket.
  static std::vector<int32_t> ends() { return {ranks() - 1, 0}; }
  static void expect_survivors_tell(ProcessGroup& group, int32_t silent) {
    for (int32_t rank = 0; rank < ranks(); ++rank)
      if (rank != silent) group.expect_silent(rank, silent);
  }
};

TEST_P(GroupProcesses, GiveTheBitsOfOneProcess) {
  for (const bool is_large : {false, true}) {
    ProcessGroup group(ranks(), is_large);
    group.start();
    for (int run = 0; run < 3; ++run) group.expect_run();
    group.expect_bits();
    if (HasFailure()) return;
  }
}

TEST_P(GroupProcesses, NameARankThatNeverCalls) {
  for (const int32_t silent : ends()) {
    ProcessGroup group(ranks());
    group.start();
    for (int32_t rank = 0; rank < ranks(); ++rank)
      if (rank != silent) group.rank(rank).say("run");
    expect_survivors_tell(group, silent);
    group.expect_all("reset", "done");
    group.expect_run();
    group.expect_bits();
    if (HasFailure()) return;
  }
}

TEST_P(GroupProcesses, LoseNothingToAStopShorterThanTheTimeOut) {
  ProcessGroup group(ranks(), false, 5000);
  group.start();
  for (int stop = 0; stop < 2; ++stop) {
    group.rank(1).signal(SIGSTOP);
    group.say("run");
    sleep_ms(1000);
    group.rank(1).signal(SIGCONT);
    for (int32_t rank = 0; rank < ranks(); ++rank) EXPECT_EQ(group.heard_status(rank).status, 0U);
  }
  group.expect_bits();
}

TEST_P(GroupProcesses, GoOnAfterAStopLongerThanTheTimeOut) {
  ProcessGroup group(ranks(), false, 300);
  group.start();
  group.say("loop");
  sleep_ms(200);
  group.rank(1).signal(SIGSTOP);
  expect_survivors_tell(group, 1);
  sleep_ms(500);
  group.rank(1).signal(SIGCONT);
  EXPECT_NE(group.heard_status(1).status & device::kStatusSilentRank, 0U);
  group.rank(1).say("alive");
  EXPECT_EQ(group.hear(1), "alive");
  group.expect_all("reset", "done");
  group.expect_run();
  group.expect_bits();
}

// Before its first call, and after one that is over.
TEST_P(GroupProcesses, SurviveARankThatIsKilledBetweenCalls) {
  for (const int32_t dead : ends())
    for (const bool has_run : {false, true}) {
      ProcessGroup group(ranks());
      group.start();
      if (has_run) group.expect_run();
      group.kill(dead);
      group.rank(dead).wait();
      group.say("run");
      expect_survivors_tell(group, dead);
      group.replace(dead);
      group.expect_run();
      group.expect_bits();
      if (HasFailure()) return;
    }
}

// While its rows are on the wire: a large layer, and calls that follow each other without a pause.
TEST_P(GroupProcesses, SurviveARankThatIsKilledWhileItSends) {
  for (int run = 0; run < 6; ++run) {
    const int32_t dead = ends()[static_cast<std::size_t>(run % 2)];
    ProcessGroup group(ranks(), true);
    group.start();
    for (int32_t rank = 0; rank < ranks(); ++rank)
      group.rank(rank).say(rank == dead ? "flood" : "loop");
    sleep_ms(300 + run * 8);
    group.kill(dead);
    expect_survivors_tell(group, dead);
    group.replace(dead);
    group.expect_run();
    if (run < 2) group.expect_bits();
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, GroupProcesses, ::testing::Values(2, 4, 8));

}  // namespace
}  // namespace moejit::testing

int main(int argc, char** argv) {
  if (argc == 8 && std::string_view(argv[1]) == "--rank")
    return moejit::testing::run_process_rank(argv + 2);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
