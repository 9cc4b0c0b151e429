// SPDX-License-Identifier: Apache-2.0
// Times are set by hand: an entry is as old as its file's time says.
#include "cache/eviction.h"

#include "cache/kernel_cache.h"
#include "compiler/support/file.h"
#include "compiler/support/temporary_files.h"
#include "tests/unit/cache/cache_test.h"

#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/wait.h>

namespace moejit::cache {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kEntryBytes = 1024 + 128 + 16;  // of a payload of 1024 bytes

class EvictionTest : public CacheTest {
 protected:
  std::unique_ptr<KernelCache> open_with(const CacheLimits& limits) {
    CacheSettings settings;
    settings.limits = limits;
    auto cache = KernelCache::open(
        root(), [this](std::string_view message) { warnings_.emplace_back(message); }, settings);
    EXPECT_TRUE(cache);
    return std::move(*cache);
  }
  static Digest key(int i) { return sha256(fmt::format("{}", i)); }
  static void put(KernelCache& cache, int i) {
    EXPECT_TRUE(cache.put(key(i), "{}", payload(1024)));
  }
  static void set_age(const std::filesystem::path& path, std::chrono::seconds age) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    timespec time{};
    time.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(now - age).count();
    const timespec times[2] = {time, time};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW), 0) << path;
  }
  static std::int64_t age_of(const std::filesystem::path& path) {
    struct stat status {};
    EXPECT_EQ(::stat(path.c_str(), &status), 0);
    return ::time(nullptr) - status.st_mtim.tv_sec;
  }
  bool has(int i) const { return std::filesystem::exists(path_of(key(i))); }
  std::filesystem::path stats_file() const { return folder_ / "cache/v2/stats"; }
};

TEST_F(EvictionTest, RemovesWhatWasUsedLongestAgoAboveTheNumberOfFiles) {
  const auto cache = open_with({.max_files = 10});
  for (int i = 0; i < 10; ++i) {
    put(*cache, i);
    set_age(path_of(key(i)), 1h + std::chrono::minutes(i));
  }
  EXPECT_EQ(cache->counters().evicted, 0);
  put(*cache, 10);
  // Nine tenths of ten are left.
  for (int i = 0; i <= 10; ++i) EXPECT_EQ(has(i), i < 8 || i == 10) << i;
  EXPECT_EQ(cache->counters().evicted, 2);
}

TEST_F(EvictionTest, KeepsTheSumOfSizesWithinTheLimitAfterEachPublication) {
  const std::int64_t limit = 20 * kEntryBytes;
  const auto cache = open_with({.max_bytes = limit});
  for (int i = 0; i < 60; ++i) {
    put(*cache, i);
    set_age(path_of(key(i)), 2h - std::chrono::minutes(i));
    EXPECT_LE(cache->statistics().bytes, limit) << i;
    EXPECT_EQ(cache->statistics().counted.total[Count::kBytes], cache->statistics().bytes) << i;
    EXPECT_EQ(cache->statistics().counted.total[Count::kFiles], cache->statistics().files) << i;
  }
  EXPECT_TRUE(has(59));
  EXPECT_FALSE(has(0));
}

TEST_F(EvictionTest, CountsWhatOtherProcessesPublished) {
  const auto cache = open_with({.max_files = 4});
  for (int i = 0; i < 4; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      const auto other = KernelCache::open(root());
      ::_exit(other && (*other)->put(key(i), "{}", payload(1024)) ? 0 : 1);
    }
    int status = 1;
    ::waitpid(child, &status, 0);
    ASSERT_EQ(status, 0);
    set_age(path_of(key(i)), 1h - std::chrono::minutes(i));
  }
  put(*cache, 4);
  EXPECT_FALSE(has(0));
  EXPECT_TRUE(has(4));
}

TEST_F(EvictionTest, CountsACacheThatHasNoStatsYet) {
  {
    const auto cache = open_with({});
    for (int i = 0; i < 5; ++i) {
      put(*cache, i);
      set_age(path_of(key(i)), 1h);
    }
  }
  std::filesystem::remove(stats_file());
  const auto cache = open_with({.max_files = 5});
  put(*cache, 5);
  EXPECT_LE(cache->statistics().files, 5);
}

TEST_F(EvictionTest, NeverRemovesWhatWasUsedOrReplacedMeanwhile) {
  open()->put(sha256("a"), "{}", payload(10));
  const auto folder = CacheFolder::open(root()).value();
  const FileInfo listed = entry_files(folder).at(0);
  const auto path = path_of(sha256("a"));
  std::filesystem::last_write_time(path,
                                   std::filesystem::last_write_time(path) - std::chrono::hours(2));
  EXPECT_EQ(folder.remove(listed), EBUSY);  // used
  const FileInfo used = entry_files(folder).at(0);
  std::filesystem::copy_file(path, folder_ / "copy");
  std::filesystem::last_write_time(folder_ / "copy", std::filesystem::last_write_time(path));
  std::filesystem::rename(folder_ / "copy", path);
  EXPECT_EQ(folder.remove(used), EBUSY);  // replaced
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_EQ(folder.remove(entry_files(folder).at(0)), 0);
}

TEST_F(EvictionTest, NeverRemovesWhatWasUsedInTheLastTenMinutes) {
  const auto cache = open_with({.max_files = 2});
  for (int i = 0; i < 6; ++i) put(*cache, i);
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(has(i)) << i;
  for (int i = 0; i < 3; ++i) set_age(path_of(key(i)), 9min);
  EXPECT_FALSE(cache->collect_garbage().is_within_limits);
  EXPECT_EQ(cache->statistics().files, 6);
  for (int i = 0; i < 3; ++i) set_age(path_of(key(i)), 11min);
  const Collected collected = cache->collect_garbage();
  EXPECT_EQ(collected.evicted_files, 3);
  EXPECT_EQ(collected.files, 3);
  EXPECT_EQ(collected.bytes, 3 * kEntryBytes);
}

// A folder of young entries is too large for a while. Who publishes then must not list it each
// time.
TEST_F(EvictionTest, LooksAgainWhenTheOldestIsOldEnough) {
  const auto cache = open_with({.max_files = 2});
  for (int i = 0; i < 6; ++i) {
    put(*cache, i);
    set_age(path_of(key(i)), std::chrono::minutes(i + 1));
  }
  const CacheFolder folder = CacheFolder::open(root()).value();
  const CacheLimits limits{.max_files = 2};
  const Eviction eviction = evict(folder, limits, limits);
  EXPECT_EQ(eviction.evicted_files, 0);
  constexpr std::int64_t kSecond = 1'000'000'000;
  EXPECT_NEAR(static_cast<double>((eviction.next_ns - now_ns()) / kSecond), 4 * 60, 30);
}

TEST_F(EvictionTest, AHitCountsAsUseAtMostOncePerHour) {
  const auto cache = open_with({});
  put(*cache, 0);
  set_age(path_of(key(0)), 59min);
  EXPECT_TRUE(cache->get(key(0)));
  EXPECT_GT(age_of(path_of(key(0))), 58 * 60);
  set_age(path_of(key(0)), 61min);
  EXPECT_TRUE(cache->get(key(0)));
  EXPECT_LT(age_of(path_of(key(0))), 60);
  // A clock that was wrong is corrected, too.
  set_age(path_of(key(0)), -48h);
  EXPECT_TRUE(cache->get(key(0)));
  EXPECT_LT(std::abs(age_of(path_of(key(0)))), 60);
}

TEST_F(EvictionTest, TheTimeOfAFileDecidesNothingElse) {
  const auto cache = open_with({});
  put(*cache, 0);
  for (const auto age : {-24h * 365 * 10, 24h * 365 * 50}) {
    set_age(path_of(key(0)), age);
    EXPECT_TRUE(open_with({})->get(key(0)));
  }
}

TEST_F(EvictionTest, TakesTimesFarInTheFutureForOld) {
  const auto cache = open_with({.max_files = 1});
  put(*cache, 0);
  set_age(path_of(key(0)), -48h);
  put(*cache, 1);
  EXPECT_FALSE(has(0));
  EXPECT_TRUE(has(1));
}

TEST_F(EvictionTest, LeavesOtherPeoplesFilesAlone) {
  const auto cache = open_with({.max_files = 1});
  put(*cache, 0);
  const auto foreign = path_of(key(0)).parent_path() / "notes.txt";
  ASSERT_TRUE(write_file(foreign.string(), "text"));
  set_age(foreign, 24h);
  set_age(path_of(key(0)), 24h);
  put(*cache, 1);
  EXPECT_FALSE(has(0));
  EXPECT_TRUE(std::filesystem::exists(foreign));
}

TEST_F(EvictionTest, SweepsTheTemporaryFilesOfDeadProcesses) {
  const auto cache = open_with({});
  const std::filesystem::path tmp = folder_ / "cache/v2/tmp";
  const auto make = [&](const std::string& name, std::chrono::seconds age) {
    EXPECT_TRUE(write_file((tmp / name).string(), "half a file"));
    set_age(tmp / name, age);
  };
  const std::string mine = temporary_name();
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  const std::string system = mine.substr(0, mine.find('-'));
  const std::string dead = fmt::format("{}-{}-0123456789abcdef", system, child);
  make(mine, 2h);
  make(dead, 0s);
  make("01234567-1-0123456789abcdef", 59min);  // another machine's or container's
  make("89abcdef-1-0123456789abcdef", 61min);
  make("odd", 61min);
  EXPECT_EQ(cache->collect_garbage().swept, 3);
  EXPECT_TRUE(std::filesystem::exists(tmp / mine));
  EXPECT_TRUE(std::filesystem::exists(tmp / "01234567-1-0123456789abcdef"));
  EXPECT_EQ(files_in(tmp), 2u);
  set_age(tmp / mine, 25h);
  EXPECT_EQ(cache->collect_garbage().swept, 1);
}

TEST_F(EvictionTest, SweepsBeforeTheFirstPublication) {
  const auto cache = open_with({});
  const std::filesystem::path tmp = folder_ / "cache/v2/tmp";
  ASSERT_TRUE(write_file((tmp / "01234567-1-0").string(), "half a file"));
  set_age(tmp / "01234567-1-0", 2h);
  put(*cache, 0);
  EXPECT_EQ(files_in(tmp), 0u);
}

TEST_F(EvictionTest, ClearsEverything) {
  const auto cache = open_with({});
  put(*cache, 0);
  put(*cache, 1);
  EXPECT_EQ(cache->clear(), 2);
  EXPECT_EQ(cache->statistics().files, 0);
  EXPECT_FALSE(std::filesystem::exists(stats_file()));
  put(*cache, 2);
  EXPECT_TRUE(cache->get(key(2)));
}

}  // namespace
}  // namespace moejit::cache
