// SPDX-License-Identifier: Apache-2.0
#include "cache/stripe_locks.h"

#include "compiler/support/file.h"
#include "tests/support/matchers.h"

#include <array>
#include <csignal>
#include <filesystem>
#include <fmt/core.h>
#include <functional>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace moejit::cache {
namespace {

namespace fs = std::filesystem;
using moejit::testing::succeeded;
using std::chrono::hours;
using std::chrono::milliseconds;

Digest key(int first_byte, int last_byte = 0) {
  Digest digest;
  digest.bytes.front() = static_cast<std::uint8_t>(first_byte);
  digest.bytes.back() = static_cast<std::uint8_t>(last_byte);
  return digest;
}

class StripeLocksTest : public ::testing::Test {
 protected:
  std::unique_ptr<StripeLocks> open() {
    auto locks = StripeLocks::open(folder());
    EXPECT_TRUE(succeeded(locks));
    return std::move(*locks);
  }
  std::string folder() const { return (dir_ / "run").string(); }

  // A process that holds the stripe of `digest` and then does `then`. The lock is held when this
  // returns.
  pid_t holder(const Digest& digest, const std::function<void()>& then) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    const pid_t process = ::fork();
    if (process == 0) {
      const auto locks = StripeLocks::open(folder());
      const auto held = (*locks)->lock(digest, hours(1));
      const char sign = held ? 'y' : 'n';
      if (::write(ends[1], &sign, 1) != 1) ::_exit(1);
      then();
      ::_exit(0);
    }
    char sign = 0;
    EXPECT_EQ(::read(ends[0], &sign, 1), 1);
    EXPECT_EQ(sign, 'y');
    ::close(ends[0]);
    ::close(ends[1]);
    return process;
  }
  static void end(pid_t process) {
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
  }
  static void sleep_until_killed() {
    for (;;) ::pause();
  }

  moejit::testing::TestDir dir_;
};

TEST_F(StripeLocksTest, KeepsOthersOutUntilItIsLetGo) {
  const auto locks = open();
  std::optional<StripeLock> mine = locks->lock(key(5), milliseconds(0));
  ASSERT_TRUE(mine);
  const auto other_gets = [&](const Digest& digest) {
    bool gets = false;
    std::thread([&] { gets = locks->lock(digest, milliseconds(0)).has_value(); }).join();
    return gets;
  };
  EXPECT_FALSE(other_gets(key(5)));
  EXPECT_FALSE(other_gets(key(5, 9)));  // shares the stripe
  EXPECT_TRUE(other_gets(key(6)));
  mine.reset();
  EXPECT_TRUE(other_gets(key(5)));
}

TEST_F(StripeLocksTest, GivesAThreadOneStripeAtMost) {
  const auto locks = open();
  std::optional<StripeLock> first = locks->lock(key(1), milliseconds(0));
  ASSERT_TRUE(first);
  EXPECT_FALSE(locks->lock(key(2), hours(1)));
  first.reset();
  EXPECT_TRUE(locks->lock(key(2), milliseconds(0)));
}

TEST_F(StripeLocksTest, IsFreeWhenItsHolderIsKilled) {
  const pid_t other = holder(key(7), sleep_until_killed);
  const auto locks = open();
  EXPECT_FALSE(locks->lock(key(7), milliseconds(20)));
  end(other);
  EXPECT_TRUE(locks->lock(key(7), hours(1)));
}

TEST_F(StripeLocksTest, DoesNotWaitTwiceForAHolderThatIsStuck) {
  const pid_t other = holder(key(7), sleep_until_killed);
  ::kill(other, SIGSTOP);
  const auto locks = open();
  EXPECT_FALSE(locks->lock(key(7), milliseconds(20)));
  EXPECT_FALSE(locks->lock(key(7), hours(1)));  // at once
  end(other);
  EXPECT_TRUE(locks->lock(key(7), hours(1)));
}

TEST_F(StripeLocksTest, WaitsAgainOnceAStuckHolderHasLetGo) {
  const pid_t stuck = holder(key(7), sleep_until_killed);
  const auto locks = open();
  EXPECT_FALSE(locks->lock(key(7), milliseconds(20)));
  end(stuck);
  EXPECT_TRUE(locks->lock(key(7), hours(1)));
  const pid_t other = holder(key(7), sleep_until_killed);
  std::jthread([&] {
    std::this_thread::sleep_for(milliseconds(50));
    ::kill(other, SIGKILL);
  }).detach();
  EXPECT_TRUE(locks->lock(key(7), hours(1)));  // held at first
  ::waitpid(other, nullptr, 0);
}

TEST_F(StripeLocksTest, StopsWaitingWhenAskedTo) {
  const pid_t other = holder(key(7), sleep_until_killed);
  const auto locks = open();
  std::stop_source stop;
  std::jthread([&] { stop.request_stop(); }).detach();
  EXPECT_FALSE(locks->lock(key(7), hours(1), stop.get_token()));
  end(other);
}

TEST_F(StripeLocksTest, IsNotKeptByTheChildOfAFork) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  // The holder forks while it holds the stripe, tells us its child and dies; the child lives on.
  const pid_t parent = holder(key(7), [&] {
    const pid_t child = ::fork();
    if (child == 0) sleep_until_killed();
    if (::write(ends[1], &child, sizeof(child)) < 0) ::_exit(1);
  });
  pid_t child = 0;
  ASSERT_EQ(::read(ends[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
  ::waitpid(parent, nullptr, 0);
  EXPECT_TRUE(open()->lock(key(7), milliseconds(2000)));
  ::kill(child, SIGKILL);
}

TEST_F(StripeLocksTest, NeverRemovesItsFiles) {
  const auto locks = open();
  const std::string file = folder() + "/stripe-2a";
  struct stat before {};
  ASSERT_TRUE(locks->lock(key(0x2a), milliseconds(0)));
  ASSERT_EQ(::stat(file.c_str(), &before), 0);
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(locks->lock(key(0x2a, i), milliseconds(0)));
  struct stat after {};
  ASSERT_EQ(::stat(file.c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder()), fs::directory_iterator()), 1);
}

TEST_F(StripeLocksTest, MakesAFolderThatNobodyElseCanEnter) {
  open();
  struct stat status {};
  ASSERT_EQ(::stat(folder().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0700U);
}

TEST_F(StripeLocksTest, RefusesFoldersThatOthersCouldUse) {
  const auto reason = [](const std::string& path) {
    const auto locks = StripeLocks::open(path);
    return locks ? std::string("opened") : locks.error().message;
  };
  EXPECT_EQ(reason("run"), "folder of lock files run: it is not absolute");
  EXPECT_EQ(reason((dir_ / "no/such").string()),
            fmt::format("folder of lock files {}: No such file or directory",
                        (dir_ / "no/such").string()));
  fs::create_directory(folder());
  fs::permissions(folder(), fs::perms(0770));
  EXPECT_EQ(reason(folder()),
            fmt::format("folder of lock files {}: its mode is 0770: other users may write to it",
                        folder()));
  fs::permissions(folder(), fs::perms(0700));
  EXPECT_EQ(reason(folder()), "opened");
  const std::string link = (dir_ / "link").string();
  fs::create_directory_symlink(folder(), link);
  EXPECT_NE(reason(link), "opened");
  if (::geteuid() != 0) return;
  ASSERT_EQ(::chown(folder().c_str(), 1234, 1234), 0);
  EXPECT_EQ(
      reason(folder()),
      fmt::format("folder of lock files {}: it belongs to user 1234, wanted user 0", folder()));
}

TEST_F(StripeLocksTest, IsWhereTheEnvironmentSays) {
  ::setenv("MOEJIT_RUN_DIR", folder().c_str(), 1);
  auto locks = open_default_stripe_locks();
  ::unsetenv("MOEJIT_RUN_DIR");
  ASSERT_TRUE(succeeded(locks));
  EXPECT_EQ((*locks)->folder(), folder());
  const std::string runtime = (dir_ / "").string();
  ::setenv("XDG_RUNTIME_DIR", runtime.c_str(), 1);
  locks = open_default_stripe_locks();
  ::unsetenv("XDG_RUNTIME_DIR");
  ASSERT_TRUE(succeeded(locks));
  EXPECT_EQ((*locks)->folder(), runtime + "/moejit");
}

}  // namespace
}  // namespace moejit::cache
