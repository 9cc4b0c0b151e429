// SPDX-License-Identifier: Apache-2.0
// Many processes of a node that want the same kernels at once, with the fake NVRTC. The environment
// variable FLIGHT_RUNS says how often each test is repeated; once where it is not set.
#include "tests/flight/node_fixture.h"

#include <random>

namespace moejit::testing {
namespace {

using std::chrono::milliseconds;

constexpr int kProcesses = NodeTest::Crowd{}.processes;
constexpr int kKernels = NodeTest::Crowd{}.kernels;

int runs() {
  const char* const text = std::getenv("FLIGHT_RUNS");  // NOLINT(concurrency-mt-unsafe)
  return text != nullptr ? std::atoi(text) : 1;
}

TEST_F(NodeTest, CompilesEachKernelOnce) {
  for (int run = 0; run < runs(); ++run) {
    std::filesystem::remove_all(cache_dir());
    clear_control();
    control()->microseconds = 2000;
    const auto processes = start_all({}, run_dir());
    control()->go = 1;
    for (const pid_t process : processes) EXPECT_EQ(end_of(process), 0);
    EXPECT_EQ(control()->begun, kKernels) << "run " << run;
    for (int i = 0; i < kKernels; ++i)
      EXPECT_EQ(control()->begun_of[static_cast<std::size_t>(i)], 1) << "kernel " << i;
    EXPECT_EQ(check_cache(), kKernels);
  }
}

TEST_F(NodeTest, GoesOnWhereProcessesAreKilled) {
  std::mt19937 random(7);
  // What a process compiles at a time is lost with it: here one kernel.
  ::setenv("MOEJIT_COMPILE_JOBS", "1", 1);
  for (int run = 0; run < runs(); ++run) {
    std::filesystem::remove_all(cache_dir());
    clear_control();
    control()->microseconds = 10000;
    auto processes = start_all({}, run_dir());
    control()->go = 1;
    constexpr int kKills = 4;
    for (int i = 0; i < kKills; ++i) {
      std::this_thread::sleep_for(milliseconds(random() % 60));
      kill(processes[static_cast<std::size_t>(i)], SIGKILL);
    }
    int killed = 0;
    for (int i = 0; i < kProcesses; ++i) {
      const int end = end_of(processes[static_cast<std::size_t>(i)]);
      if (end == kKilled && i < kKills)
        ++killed;
      else
        EXPECT_EQ(end, 0) << "process " << i;
    }
    EXPECT_LE(control()->begun, kKernels + killed) << "run " << run;
    EXPECT_EQ(check_cache(), kKernels);
    const int64_t before = control()->begun;
    EXPECT_EQ(end_of(start({}, ++seed_, run_dir())), 0);
    EXPECT_EQ(control()->begun, before);
  }
  ::unsetenv("MOEJIT_COMPILE_JOBS");
}

TEST_F(NodeTest, DoesNotWaitForeverForAProcessThatIsStopped) {
  control()->microseconds = 300000;
  control()->go = 1;
  const Crowd one{.processes = 1, .threads = 1, .kernels = 1};
  const pid_t stopped = start(one, 1, run_dir());
  while (control()->begun == 0) std::this_thread::sleep_for(milliseconds(1));
  kill(stopped, SIGSTOP);
  ::setenv("MOEJIT_LOCK_SECONDS", "1", 1);
  EXPECT_EQ(end_of(start(one, 2, run_dir())), 0);
  ::unsetenv("MOEJIT_LOCK_SECONDS");
  EXPECT_EQ(control()->begun, 2);
  kill(stopped, SIGCONT);
  EXPECT_EQ(end_of(stopped), 0);
  EXPECT_EQ(check_cache(), 1);
}

TEST_F(NodeTest, NeedsNoLocks) {
  ASSERT_TRUE(write_file(run_dir(), "not a folder"));
  const Crowd few{.processes = 4, .threads = 4, .kernels = 16};
  control()->microseconds = 2000;
  const auto processes = start_all(few, run_dir());
  control()->go = 1;
  for (const pid_t process : processes) EXPECT_EQ(end_of(process), 0);
  EXPECT_GE(control()->begun, few.kernels);
  EXPECT_LE(control()->begun, few.kernels * few.processes);
  EXPECT_EQ(check_cache(), few.kernels);
}

}  // namespace
}  // namespace moejit::testing
