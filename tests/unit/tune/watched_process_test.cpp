// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/watched_process.h"

#include "tests/support/matchers.h"

#include <csignal>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

namespace moejit::tune {
namespace {

using testing::succeeded;

class WatchedProcess : public ::testing::Test {
 protected:
  Result<void> run(const WatchedWork& work) { return run_watched(watch_, work, observer_); }

  Watch watch_;
  TuneObserver observer_;
};

TEST_F(WatchedProcess, ReturnsTheErrorOfItsWorkWhateverItsBytes) {
  const Error told{Stage::kCompile, ErrorCode::kCompileFailed, "line\n\"1\"", "hint", "\xff log"};
  const auto done =
      run([&](std::span<const Loss>) -> Result<void> { return tl::make_unexpected(told); });
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().stage, told.stage);
  EXPECT_EQ(done.error().code, told.code);
  EXPECT_EQ(done.error().message, told.message);
  EXPECT_EQ(done.error().hint, told.hint);
  EXPECT_EQ(done.error().detail, told.detail);
}

TEST_F(WatchedProcess, CutsALogThatIsTooLong) {
  const auto done = run([](std::span<const Loss>) -> Result<void> {
    return tl::make_unexpected(Error{Stage::kCompile, ErrorCode::kCompileFailed, "message", "hint",
                                     std::string(1 << 20, 'x')});
  });
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().hint, "hint");
  EXPECT_GT(done.error().detail.size(), 60000U);
}

TEST_F(WatchedProcess, IsStartedAgainWithWhatTheOneBeforeWasDoing) {
  const auto done = run([&](std::span<const Loss> losses) -> Result<void> {
    if (losses.empty()) {
      watch_.begin(Doing::kMaking, 5, 7);
      ::raise(SIGKILL);
    }
    const Loss& loss = losses.front();
    if (losses.size() != 1 || loss.doing != Doing::kMaking || loss.problem != 5 ||
        loss.candidate != 7 || loss.fault != Fault::kCrashes)
      ::_exit(1);
    return fail(Stage::kCommand, ErrorCode::kUsage, loss.message);
  });
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message, "the process that measures was ended by signal 9 (SIGKILL)");
}

TEST_F(WatchedProcess, IsEndedIfItHangs) {
  const auto done = run([&](std::span<const Loss> losses) -> Result<void> {
    if (losses.empty()) {
      watch_.begin(Doing::kAlone, 1, 2, 0.05);
      while (true) ::pause();
    }
    if (losses.front().fault != Fault::kHangs) ::_exit(1);
    return {};
  });
  EXPECT_TRUE(succeeded(done));
}

TEST_F(WatchedProcess, IsStartedOnceMoreIfItEndsBesideAllProblems) {
  const auto twice = run([](std::span<const Loss>) -> Result<void> { ::_exit(3); });
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().message, "the process that measures ended with exit status 3");
  EXPECT_TRUE(run([](std::span<const Loss> losses) -> Result<void> {
    if (losses.empty()) ::_exit(3);
    return {};
  }));
}

TEST_F(WatchedProcess, IsAskedToStopAndNotReplaced) {
  class Stopping final : public TuneObserver {
   public:
    bool stops() override { return true; }
  } stopping;
  const auto stopped = run_watched(
      watch_,
      [&](std::span<const Loss> losses) -> Result<void> {
        if (!losses.empty()) return fail(Stage::kCommand, ErrorCode::kInternal, "started again");
        while (!watch_.stops()) ::usleep(1000);
        watch_.begin(Doing::kRounds, 1);
        ::_exit(1);
      },
      stopping);
  EXPECT_TRUE(succeeded(stopped));
}

TEST_F(WatchedProcess, IsMissedWhereItsParentIgnoresItsEnd) {
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  EXPECT_TRUE(run([](std::span<const Loss>) -> Result<void> { return {}; }));
  EXPECT_FALSE(run([](std::span<const Loss>) -> Result<void> { ::_exit(3); }));
  std::signal(SIGCHLD, before);
}

TEST_F(WatchedProcess, TellsOnceWhenMeasuringBegan) {
  EXPECT_FALSE(watch_.measuring_since());
  ASSERT_TRUE(run([&](std::span<const Loss>) -> Result<void> {
    watch_.begin_measuring();
    return {};
  }));
  const auto since = watch_.measuring_since();
  ASSERT_TRUE(since);
  watch_.begin_measuring();
  EXPECT_EQ(watch_.measuring_since(), since);
}

}  // namespace
}  // namespace moejit::tune
