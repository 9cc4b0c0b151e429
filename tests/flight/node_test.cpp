// SPDX-License-Identifier: Apache-2.0
// Many processes of a node that want the same kernels at once, with the fake NVRTC. The environment
// variable FLIGHT_RUNS says how often each test is repeated; once where it is not set.
#include "cache/kernel_cache.h"
#include "tests/flight/flight_fixture.h"

#include <array>
#include <chrono>
#include <csignal>
#include <random>
#include <spawn.h>
#include <sys/wait.h>
#include <thread>

extern char** environ;

namespace moejit::testing {
namespace {

using std::chrono::milliseconds;

constexpr int kProcesses = 16;
constexpr int kThreads = 16;
constexpr int kKernels = 64;
constexpr int kKilled = -SIGKILL;
constexpr int kHung = -1000;

int runs() {
  const char* const text = std::getenv("FLIGHT_RUNS");  // NOLINT(concurrency-mt-unsafe)
  return text != nullptr ? std::atoi(text) : 1;
}

class NodeTest : public FlightTest {
 protected:
  struct Crowd {
    int processes = kProcesses;
    int threads = kThreads;
    int kernels = kKernels;
  };

  pid_t start(const Crowd& crowd, int seed, const std::string& run_dir) {
    std::vector<std::string> words = {MOEJIT_FLIGHT_PROCESS,
                                      cache_dir(),
                                      run_dir,
                                      control_path(),
                                      std::to_string(crowd.threads),
                                      std::to_string(crowd.kernels),
                                      std::to_string(seed)};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_t process = 0;
    EXPECT_EQ(posix_spawn(&process, argv[0], nullptr, nullptr, argv.data(), environ), 0);
    return process;
  }

  // All of them, waiting for go().
  std::vector<pid_t> start_all(const Crowd& crowd, const std::string& run_dir) {
    std::vector<pid_t> processes;
    for (int i = 0; i < crowd.processes; ++i) processes.push_back(start(crowd, ++seed_, run_dir));
    while (control()->ready < crowd.processes) std::this_thread::sleep_for(milliseconds(1));
    return processes;
  }

  // Exit status, minus the signal that ended it, or kHung; a process that hangs is killed.
  static int end_of(pid_t process, std::chrono::seconds limit = std::chrono::seconds(90)) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    int status = 0;
    while (waitpid(process, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > deadline) {
        kill(process, SIGKILL);
        waitpid(process, &status, 0);
        return kHung;
      }
      std::this_thread::sleep_for(milliseconds(2));
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  // Verifies each published entry, and returns how many there are.
  int check_cache() const {
    const auto cache = cache::KernelCache::open(cache_dir());
    EXPECT_TRUE(succeeded(cache));
    const auto entries = (*cache)->list();
    for (const cache::EntryInfo& entry : entries) EXPECT_EQ(entry.problem, "") << entry.path;
    return static_cast<int>(entries.size());
  }

  int seed_ = 0;
};

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
