// SPDX-License-Identifier: Apache-2.0
// The same as fork_test with the real NVRTC, which has locks of its own.
#include "compiler/support/error.h"
#include "runtime/engine.h"
#include "tests/flight/forked_child.h"
#include "tests/support/matchers.h"
#include "tests/unit/nvrtc/small_kernel.h"

#include <atomic>
#include <cstdlib>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace moejit::testing {
namespace {

constexpr int kThreads = 8;

int runs() {
  const char* const text = std::getenv("FORK_RUNS");  // NOLINT(concurrency-mt-unsafe)
  return text != nullptr ? std::atoi(text) : 4;
}

compiler::KernelSource kernel(int number) {
  return compiler::small_kernel(fmt::format("  // {}\n", number));
}

TEST(ForkNvrtc, ChildCompilesWhileThreadsOfItsParentDo) {
  auto created = runtime::Engine::create({.use_cache = false, .compile_jobs = kThreads});
  ASSERT_TRUE(succeeded(created));
  const auto engine = std::move(*created);
  if (const auto first = engine->obtain(kernel(0)); !first)
    GTEST_SKIP() << to_string(first.error());
  std::atomic<int> next{1};
  std::atomic<bool> is_over{false};
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      while (!is_over) EXPECT_TRUE(succeeded(engine->obtain(kernel(next++))));
    });
  for (int run = 0; run < runs(); ++run) {
    std::this_thread::sleep_for(std::chrono::microseconds(3000 + run * 137 % 20000));
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(60);
      ::_exit(!kWatchesChildren || engine->obtain(kernel(-1 - run)) ? 0 : 1);
    }
    EXPECT_NO_FATAL_FAILURE(expect_success_of(child, run));
  }
  is_over = true;
}

}  // namespace
}  // namespace moejit::testing
