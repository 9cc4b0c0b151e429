// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <gtest/gtest.h>
#include <sys/wait.h>

namespace moejit::testing {

// A child that is forked while other threads run is nothing that ThreadSanitizer can look at: it
// reports nothing of it, ends it where it starts a thread, and its allocator's locks stay locked in
// it (GCC 12, LLVM 14), so that some would wait for ever. With it, only the parent is looked at.
#ifdef __SANITIZE_THREAD__
inline constexpr bool kWatchesChildren = false;
#else
inline constexpr bool kWatchesChildren = true;
#endif

// Waits for a child, which has to exit with 0; one that is not watched is killed.
inline void expect_success_of(pid_t child, int run) {
  ASSERT_GT(child, 0);
  if (!kWatchesChildren) ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (!kWatchesChildren) return;
  ASSERT_TRUE(WIFEXITED(status)) << "run " << run << ", signal " << WTERMSIG(status);
  ASSERT_EQ(WEXITSTATUS(status), 0) << "run " << run;
}

}  // namespace moejit::testing
