// SPDX-License-Identifier: Apache-2.0
// The tool ends with a sentence and a status wherever its memory ends, also before its command
// begins. malloc is this program's own.
#include "cli/command_line.h"
#include "compiler/support/error.h"
#include "tests/unit/c_api/counted_malloc.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace moejit::testing {
namespace {

TEST(OutOfMemory, EndsTheToolWithAStatus) {
  const char* const words[] = {"moejit", "plan", "/nonexistent/layer.json"};
  const auto run = [&] { return cli::run_command_line(3, words); };
  const int64_t before = allocations();
  const int found_nothing = run();
  const int64_t all = allocations() - before;
  EXPECT_EQ(found_nothing, exit_code_of(ErrorCode::kFileNotFound));
  ASSERT_GT(all, 100);
  for (int64_t count = 0; count < all; count += 1 + all / 200) {
    const pid_t child = ::fork();
    if (child == 0) {
      fail_allocations_after(count);
      const int status = run();
      fail_no_allocations();
      ::_exit(status);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status) << " with " << count;
    EXPECT_TRUE(WEXITSTATUS(status) == exit_code_of(ErrorCode::kOutOfMemory) ||
                WEXITSTATUS(status) == found_nothing)
        << WEXITSTATUS(status) << " with " << count << " allocations";
  }
}

}  // namespace
}  // namespace moejit::testing
