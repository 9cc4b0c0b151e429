// SPDX-License-Identifier: Apache-2.0
// However a host ends: it does not crash, and the driver is not called after it has ended.
#include "tests/driver/driver_fixture.h"

#include <array>
#include <sys/wait.h>
#include <unistd.h>

namespace moejit::testing {
namespace {

class ExitTest : public DriverTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void TearDown() override {}  // what a process leaves goes with it
};

TEST_P(ExitTest, EndsWellAndCallsNothingAfterTheDriver) {
  const pid_t child = ::fork();
  if (child == 0) {
    const char* const last = std::string_view(GetParam()).find("library") == std::string_view::npos
                                 ? nullptr
                                 : MOEJIT_SHARED;
    ::execl(MOEJIT_EXIT_PROCESS, MOEJIT_EXIT_PROCESS, GetParam(), last, nullptr);
    ::_exit(127);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(cuda()->calls_after_shutdown, 0);
  EXPECT_GT(cuda()->calls, 0);
  EXPECT_EQ(cuda()->contexts_reset + cuda()->contexts_destroyed, 0);
  if (std::string_view(GetParam()) == "destroys_everything") DriverTest::TearDown();
}

INSTANTIATE_TEST_SUITE_P(Orders, ExitTest,
                         ::testing::Values("destroys_everything", "static_from_before_the_driver",
                                           "static_from_after_the_driver", "leaks_everything",
                                           "exits_from_another_thread", "handler_uses_and_destroys",
                                           "thread_launches_late", "thread_local_of_main",
                                           "thread_local_of_a_thread", "quick_exit",
                                           "closes_the_library", "errors_of_the_library"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace moejit::testing
