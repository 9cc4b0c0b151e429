// SPDX-License-Identifier: Apache-2.0
#include "cache/kernel_cache.h"

#include "compiler/support/file.h"
#include "tests/unit/cache/cache_test.h"

#include <chrono>
#include <csignal>
#include <fmt/core.h>
#include <set>
#include <sys/resource.h>
#include <thread>

namespace moejit::cache {
namespace {

void flip_byte(const std::filesystem::path& path, size_t offset) {
  auto file = read_file(path.string()).value();
  file.at(offset) ^= std::byte{0x10};
  ASSERT_TRUE(write_file(path.string(), file));
}

TEST_F(CacheTest, GivesBackWhatWasPut) {
  const auto cache = open();
  EXPECT_FALSE(cache->get(kKey));
  EXPECT_TRUE(cache->put(kKey, "{}", payload(1000)));
  const auto entry = cache->get(kKey);
  ASSERT_TRUE(entry);
  EXPECT_EQ(*entry, (Entry{kKey, "{}", payload(1000)}));
  EXPECT_EQ(cache->counters().hits, 1);
  EXPECT_EQ(cache->counters().misses, 1);
  EXPECT_EQ(cache->counters().published, 1);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(CacheTest, LeavesNoTemporaryFiles) {
  open()->put(kKey, "{}", payload(1000));
  EXPECT_EQ(files_in(folder_ / "cache/v2/tmp"), 0u);
  EXPECT_EQ(std::filesystem::status(path_of(kKey)).permissions(), std::filesystem::perms(0600));
  EXPECT_EQ(std::filesystem::status(root()).permissions(), std::filesystem::perms(0700));
}

TEST_F(CacheTest, ServesLaterCaches) {
  open()->put(kKey, "{}", payload(1000));
  EXPECT_TRUE(open()->get(kKey));
}

TEST_F(CacheTest, MovesACorruptEntryAsideAndWarnsOnce) {
  open()->put(kKey, "{}", payload(1000));
  flip_byte(path_of(kKey), 700);
  const auto cache = open();
  EXPECT_FALSE(cache->get(kKey));
  EXPECT_FALSE(cache->get(kKey));
  EXPECT_EQ(cache->counters().corrupt, 1);
  EXPECT_EQ(cache->counters().misses, 2);
  EXPECT_EQ(files_in(folder_ / "cache/v2/quarantine"), 1u);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_EQ(warnings_[0], fmt::format("cache entry {} is not used: its checksum does not match; it "
                                      "was moved to quarantine/ and will be made again",
                                      path_of(kKey).string()));
  EXPECT_TRUE(cache->put(kKey, "{}", payload(1000)));
  EXPECT_TRUE(cache->get(kKey));
}

TEST_F(CacheTest, KeepsTheNewest16CorruptEntries) {
  const auto cache = open();
  std::multiset<std::uintmax_t> sizes;
  for (size_t i = 0; i < 20; ++i) {
    cache->put(kKey, "{}", payload(30 - i));  // the newest are the smallest
    if (i >= 4) sizes.insert(std::filesystem::file_size(path_of(kKey)));
    flip_byte(path_of(kKey), 90);
    EXPECT_FALSE(cache->get(kKey));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // time stamps are coarse
  }
  std::multiset<std::uintmax_t> kept;
  for (const auto& file : std::filesystem::directory_iterator(folder_ / "cache/v2/quarantine"))
    kept.insert(file.file_size());
  EXPECT_EQ(kept, sizes);
  EXPECT_EQ(cache->counters().corrupt, 20);
}

TEST_F(CacheTest, DoesNotBelieveAnEntryUnderAnotherName) {
  const auto cache = open();
  cache->put(kKey, "{}", payload(10));
  const Digest other = sha256("other");
  std::filesystem::create_directories(path_of(other).parent_path());
  std::filesystem::copy(path_of(kKey), path_of(other));
  EXPECT_FALSE(cache->get(other));
  EXPECT_TRUE(cache->get(kKey));
}

TEST_F(CacheTest, TakesOddFilesAsMisses) {
  const auto cache = open();
  std::filesystem::create_directories(path_of(kKey));
  EXPECT_FALSE(cache->get(kKey));
  std::filesystem::remove(path_of(kKey));
  ASSERT_EQ(::mkfifo(path_of(kKey).c_str(), 0600), 0);
  EXPECT_FALSE(cache->get(kKey));
  std::filesystem::remove(path_of(kKey));
  std::filesystem::create_symlink("/etc/passwd", path_of(kKey));
  EXPECT_FALSE(cache->get(kKey));
  EXPECT_TRUE(cache->put(kKey, "{}", payload(10)));
  EXPECT_TRUE(cache->get(kKey));
}

// As a copy that keeps owners makes them.
TEST_F(CacheTest, TakesEntriesOfOtherUsersAsMisses) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const auto cache = open();
  cache->put(kKey, "{}", payload(10));
  ASSERT_EQ(::chown(path_of(kKey).c_str(), 12345, 12345), 0);
  EXPECT_FALSE(cache->get(kKey));
  EXPECT_EQ(cache->counters().failed_reads, 1);
  EXPECT_EQ(warnings_.size(), 1u);
  EXPECT_TRUE(cache->put(kKey, "{}", payload(10)));  // another file in its place
  EXPECT_TRUE(cache->get(kKey));
}

TEST_F(CacheTest, ListsAndVerifiesAllEntries) {
  const auto cache = open();
  const Digest other = sha256("other");
  cache->put(kKey, R"({"a":1})", payload(10));
  cache->put(other, "{}", payload(20));
  flip_byte(path_of(other), 5);
  const std::vector<EntryInfo> entries = cache->list();
  ASSERT_EQ(entries.size(), 2u);
  const EntryInfo& good = entries[entries[0].key == kKey ? 0 : 1];
  const EntryInfo& bad = entries[entries[0].key == kKey ? 1 : 0];
  EXPECT_EQ(good.metadata, R"({"a":1})");
  EXPECT_EQ(good.payload_bytes, 10);
  EXPECT_EQ(good.problem, "");
  EXPECT_EQ(bad.key, other);
  EXPECT_EQ(bad.problem, "it does not begin as a cache entry does");
  EXPECT_TRUE(std::filesystem::exists(path_of(other)));
}

TEST_F(CacheTest, GivesUpWritingOnAFullDisk) {
  const auto cache = open();
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{1000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_FALSE(cache->put(kKey, "{}", payload(2000)));
  EXPECT_FALSE(cache->put(sha256("other"), "{}", payload(2000)));
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_FALSE(cache->is_writable());
  EXPECT_FALSE(cache->get(kKey));
  EXPECT_EQ(files_in(folder_ / "cache/v2/tmp"), 0u);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_EQ(
      warnings_[0],
      fmt::format("cache folder {}: writing fails (File too large); new kernels stay in memory",
                  root()));
}

TEST_F(CacheTest, GoesOnWhereItsFolderIsRemoved) {
  const auto cache = open();
  std::filesystem::remove_all(root());
  EXPECT_FALSE(cache->get(kKey));
  EXPECT_FALSE(cache->put(kKey, "{}", payload(10)));
  EXPECT_EQ(warnings_.size(), 1u);
}

TEST_F(CacheTest, MakesItsOwnFoldersAnewWhereSomebodyTidiedUp) {
  open()->put(kKey, "{}", payload(10));
  flip_byte(path_of(kKey), 90);
  std::filesystem::remove(root() + "/v2/tmp");
  std::filesystem::remove(root() + "/v2/quarantine");
  const auto cache = open();
  EXPECT_FALSE(cache->get(kKey));
  EXPECT_EQ(files_in(root() + "/v2/quarantine"), 1u);
  EXPECT_TRUE(cache->put(kKey, "{}", payload(10)));
  EXPECT_TRUE(cache->get(kKey));
}

TEST_F(CacheTest, SurvivesThreadsThatPutAndGetAtOnce) {
  const auto cache = open();
  std::atomic<int> wrong{0};
  const auto work = [&](unsigned thread) {
    for (unsigned i = 0; i < 50; ++i) {
      const unsigned seed = (i + thread) % 8;
      const Digest key = sha256(fmt::format("{}", seed));
      if (i % 2 == 0) cache->put(key, "{}", payload(5000, seed));
      const auto entry = cache->get(key);
      if (entry && entry->payload != payload(5000, seed)) ++wrong;
    }
  };
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 8; ++thread) threads.emplace_back(work, thread);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(cache->counters().corrupt, 0);
  EXPECT_TRUE(warnings_.empty());
}

// The first put() of a folder writes the stats anew, while other threads add to them.
TEST_F(CacheTest, CountsWhatThreadsPutAtOnceIntoANewFolder) {
  for (int round = 0; round < 20; ++round) {
    std::filesystem::remove_all(root() + "/v2");
    std::vector<std::thread> threads;
    {
      const auto cache = open();
      for (unsigned seed = 0; seed < 8; ++seed)
        threads.emplace_back([&cache, seed] {
          cache->put(sha256(fmt::format("{}", seed)), "{}", payload(100, seed));
        });
      for (std::thread& thread : threads) thread.join();
    }
    EXPECT_EQ(open()->statistics().counted.total[Count::kPublished], 8);
  }
}

TEST_F(CacheTest, SurvivesProcessesThatPublishTheSameKey) {
  const auto reader = open();
  std::vector<pid_t> writers;
  for (unsigned writer = 0; writer < 4; ++writer) {
    const pid_t child = ::fork();
    if (child == 0) {
      const auto cache = KernelCache::open(root());
      bool is_good = cache.has_value();
      for (int i = 0; is_good && i < 50; ++i)
        is_good = (*cache)->put(kKey, fmt::format("{}", writer), payload(30000, writer));
      ::_exit(is_good ? 0 : 1);
    }
    writers.push_back(child);
  }
  // Whatever is seen is one writer's metadata with the same writer's payload.
  for (int i = 0; i < 200; ++i) {
    const auto entry = reader->get(kKey);
    if (!entry) continue;
    EXPECT_EQ(entry->payload, payload(30000, static_cast<unsigned>(entry->metadata[0] - '0')));
  }
  for (const pid_t writer : writers) {
    int status = 1;
    ::waitpid(writer, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_TRUE(reader->get(kKey));
  EXPECT_EQ(reader->counters().corrupt, 0);
}

}  // namespace
}  // namespace moejit::cache
