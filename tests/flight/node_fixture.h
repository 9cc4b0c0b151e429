// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache/kernel_cache.h"
#include "tests/flight/flight_fixture.h"

#include <chrono>
#include <csignal>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <vector>

extern char** environ;

namespace moejit::testing {

// Starts processes of flight_process, and looks at the cache that they share.
class NodeTest : public FlightTest {
 public:
  struct Crowd {
    int processes = 16;
    int threads = 16;
    int kernels = 64;
  };

 protected:
  static constexpr int kKilled = -SIGKILL;  // what end_of() gives
  static constexpr int kHung = -1000;

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
    while (control()->ready < crowd.processes)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
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
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
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

}  // namespace moejit::testing
