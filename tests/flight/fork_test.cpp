// SPDX-License-Identifier: Apache-2.0
// Forks of a process whose threads are compiling: the child looks up and compiles with the engine
// that it inherits. With the fake NVRTC, so that a fork hits every step of ours often.
#include "tests/flight/flight_fixture.h"
#include "tests/flight/forked_child.h"

#include <atomic>
#include <thread>
#include <unistd.h>

namespace moejit::testing {
namespace {

constexpr int kThreads = 8;

// FORK_RUNS in the environment makes more of them.
int runs() {
  const char* const text = std::getenv("FORK_RUNS");  // NOLINT(concurrency-mt-unsafe)
  return text != nullptr ? std::atoi(text) : 100;
}

class ForkTest : public FlightTest {};

// 0, or which step failed. A child that hangs is ended by SIGALRM.
int work_in_child(runtime::Engine& engine, int run) {
  ::alarm(60);
  const int used = run % 200;
  if (!engine.obtain(flight_kernel(255))) return 1;   // in memory since before the fork
  if (!engine.obtain(flight_kernel(used))) return 2;  // perhaps on its way in the parent
  if (!engine.obtain(flight_kernel(200 + run % 50))) return 3;
  return 0;
}

TEST_F(ForkTest, ChildGoesOnWithTheEngine) {
  for (int run = 0; run < runs(); ++run) {
    if (run % 50 == 0) std::filesystem::remove_all(cache_dir());
    control()->microseconds = run % 3 * 100;
    const auto shared = engine({.compile_jobs = kThreads});
    ASSERT_TRUE(succeeded(shared->obtain(flight_kernel(255))));
    std::atomic<bool> is_over{false};
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([&, i] {
        for (int k = 0; !is_over; ++k) {
          const auto kernel = shared->obtain(flight_kernel((run + i + k * kThreads) % 200));
          ASSERT_TRUE(succeeded(kernel));
        }
      });
    std::this_thread::sleep_for(std::chrono::microseconds(run % 17 * 100));
    const pid_t child = ::fork();
    if (child == 0) ::_exit(kWatchesChildren ? work_in_child(*shared, run) : 0);
    is_over = true;
    threads.clear();
    ASSERT_NO_FATAL_FAILURE(expect_success_of(child, run));
  }
}

}  // namespace
}  // namespace moejit::testing
