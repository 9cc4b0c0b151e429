// SPDX-License-Identifier: Apache-2.0
#include "cache/cache_stats.h"

#include "cache/cache_settings.h"
#include "compiler/support/file.h"
#include "tests/unit/cache/cache_test.h"

#include <cstdlib>
#include <fcntl.h>
#include <sys/stat.h>

namespace moejit::cache {
namespace {

CountTable table(std::int64_t files, std::int64_t bytes, std::int64_t hits) {
  CountTable result;
  result[Count::kFiles] = files;
  result[Count::kBytes] = bytes;
  result[Count::kHits] = hits;
  return result;
}

std::vector<std::byte> three_records() {
  std::vector<std::byte> file;
  for (const auto& record :
       {encode_stats_record(table(7, 700, 1), false), encode_stats_record(table(2, 50, 10), true),
        encode_stats_record(table(-1, -20, 100), false)})
    file.insert(file.end(), record.begin(), record.end());
  return file;
}

TEST(CacheStats, AddsRecordsUpAndCountsFilesAnewWhereARecordSaysSo) {
  const SummedStats stats = sum_stats(three_records());
  EXPECT_EQ(stats.total, table(1, 30, 111));
  EXPECT_TRUE(stats.is_size_known);
  EXPECT_EQ(stats.records, 3);
  EXPECT_EQ(stats.bad_records, 0);
}

TEST(CacheStats, KnowNoSizesBeforeSomebodyCounted) {
  EXPECT_FALSE(sum_stats(encode_stats_record(table(1, 2, 3), false)).is_size_known);
  EXPECT_FALSE(sum_stats({}).is_size_known);
}

// Files of this format exist: the bytes must never change without a new magic.
TEST(CacheStats, HaveTheBytesOfVersion1) {
  EXPECT_EQ(sha256(three_records()).hex(),
            "c5f96e5bc97b54411fe5e147b90d5703f957c340edecf43a909503a4e3ad9a1d");
}

TEST(CacheStats, NoticeEveryFlippedBit) {
  const std::vector<std::byte> good = three_records();
  for (size_t i = 0; i < good.size() * 8; ++i) {
    std::vector<std::byte> bad = good;
    bad[i / 8] ^= std::byte(1 << (i % 8));
    const SummedStats stats = sum_stats(bad);
    ASSERT_EQ(stats.bad_records, 1) << "bit " << i;
    ASSERT_FALSE(stats.is_size_known);
  }
}

TEST(CacheStats, NoticeTruncationsWithinARecord) {
  const std::vector<std::byte> good = three_records();
  for (size_t bytes = 0; bytes < good.size(); ++bytes)
    EXPECT_EQ(sum_stats(std::span(good).first(bytes)).bad_records, bytes % 128 == 0 ? 0 : 1)
        << bytes;
}

class SharedStatsTest : public CacheTest {
 protected:
  std::string stats_file() const { return root() + "/v2/stats"; }
};

TEST_F(SharedStatsTest, AddUpOverProcesses) {
  const Digest key = sha256("key");
  {
    const auto cache = open();
    EXPECT_FALSE(cache->get(key));
    cache->put(key, "{}", payload(10));
  }
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(open()->get(key));
  const CountTable total = open()->statistics().counted.total;
  EXPECT_EQ(total[Count::kHits], 3);
  EXPECT_EQ(total[Count::kMisses], 1);
  EXPECT_EQ(total[Count::kPublished], 1);
  EXPECT_EQ(total[Count::kFiles], 1);
}

TEST_F(SharedStatsTest, LoseNothingAmongThreadsAndProcesses) {
  const Digest key = sha256("key");
  open()->put(key, "{}", payload(10));
  for (int i = 0; i < 4; ++i) {
    if (::fork() != 0) continue;
    for (int j = 0; j < 25; ++j) {
      const auto cache = KernelCache::open(root());
      if (!cache || !(*cache)->get(key)) ::_exit(1);
    }
    ::_exit(0);
  }
  for (int i = 0; i < 4; ++i) {
    int status = 1;
    ::wait(&status);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(open()->statistics().counted.total[Count::kHits], 100);
}

TEST_F(SharedStatsTest, AreMadeAnewWhereTheyAreDamaged) {
  const Digest key = sha256("key");
  open()->put(key, "{}", payload(10));
  EXPECT_TRUE(open()->get(key));
  auto file = read_file(stats_file()).value();
  ASSERT_GE(file.size(), 256u);
  file[130] ^= std::byte{1};
  ASSERT_TRUE(write_file(stats_file(), file));
  const auto cache = open();
  EXPECT_EQ(cache->statistics().counted.bad_records, 1);
  EXPECT_TRUE(cache->put(sha256("other"), "{}", payload(10)));
  const SummedStats stats = cache->statistics().counted;
  EXPECT_EQ(stats.bad_records, 0);
  EXPECT_TRUE(stats.is_size_known);
  EXPECT_EQ(stats.total[Count::kFiles], 2);
  EXPECT_EQ(stats.total[Count::kCorrupt], 1);
  EXPECT_EQ(files_in(folder_ / "cache/v2/quarantine"), 1u);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(SharedStatsTest, StayShort) {
  const Digest key = sha256("key");
  const auto cache = open();
  std::vector<std::byte> file;
  const auto record = encode_stats_record(table(0, 0, 1), false);
  for (int i = 0; i < 9000; ++i) file.insert(file.end(), record.begin(), record.end());
  ASSERT_TRUE(write_file(stats_file(), file));
  EXPECT_FALSE(open()->get(key));
  EXPECT_EQ(std::filesystem::file_size(stats_file()), 128u);
  EXPECT_EQ(cache->statistics().counted.total[Count::kHits], 9000);
  EXPECT_EQ(cache->statistics().counted.total[Count::kMisses], 1);
}

TEST_F(SharedStatsTest, TellOfKernelsThatWereMadeAnewWithOtherBytes) {
  const Digest key = sha256("key");
  open()->put(key, "{}", payload(10, 1));
  const auto cache = open();
  EXPECT_TRUE(cache->put(key, "{}", payload(10, 1)));
  EXPECT_EQ(cache->counters().nondeterministic, 0);
  EXPECT_EQ(cache->counters().published, 0);
  EXPECT_TRUE(cache->put(key, "{}", payload(10, 2)));
  EXPECT_EQ(cache->counters().nondeterministic, 1);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("has other bytes"), std::string::npos);
  EXPECT_EQ(cache->get(key)->payload, payload(10, 2));
  EXPECT_EQ(cache->statistics().counted.total[Count::kNondeterministic], 1);
}

TEST_F(SharedStatsTest, CountAnEntryOnceThatWasReplacedByALargerOne) {
  const auto cache = open();
  ASSERT_TRUE(cache->put(sha256("1"), "{}", payload(1024)));
  ASSERT_TRUE(cache->put(sha256("1"), "{}", payload(4096, 2)));
  const CacheStatistics now = cache->statistics();
  EXPECT_EQ(now.files, 1);
  EXPECT_EQ(now.counted.total[Count::kFiles], now.files);
  EXPECT_EQ(now.counted.total[Count::kBytes], now.bytes);
}

TEST_F(SharedStatsTest, DoNotCallOtherWordsForTheSameKernelOtherBytes) {
  const Digest key = sha256("key");
  open()->put(key, "{\"of\":\"an earlier version\"}", payload(10, 1));
  const auto cache = open();
  EXPECT_TRUE(cache->put(key, "{}", payload(10, 1)));
  EXPECT_EQ(cache->counters().nondeterministic, 0);
  EXPECT_EQ(warnings_, std::vector<std::string>());
  EXPECT_EQ(cache->get(key)->metadata, "{\"of\":\"an earlier version\"}");
}

TEST(CacheSettings, ReadLimits) {
  EXPECT_EQ(parse_limit("65536"), 65536);
  EXPECT_EQ(parse_limit("4G"), std::int64_t{4} << 30);
  EXPECT_EQ(parse_limit("512 MiB"), std::int64_t{512} << 20);
  EXPECT_EQ(parse_limit("1kb"), 1024);
  EXPECT_EQ(parse_limit("2T"), std::int64_t{2} << 40);
  EXPECT_EQ(parse_limit("none"), kUnlimited);
  for (const char* text : {"", "0", "-1", "G", "4X", "4GG", "4 G x", "1.5G", "99999999999999999999",
                           "9223372036854775807K", "None"})
    EXPECT_FALSE(parse_limit(text)) << text;
}

TEST(CacheSettings, OfTheProgramCountBeforeThoseOfTheEnvironment) {
  ::setenv("MOEJIT_CACHE_MAX_BYTES", "1M", 1);
  ::setenv("MOEJIT_CACHE_MAX_FILES", "many", 1);  // nobody reads it
  ::setenv("MOEJIT_CACHE_NETWORK", "write", 1);
  const CacheSettings all =
      settings_of_environment({.max_bytes = 7, .max_files = 8, .writes_to_network = false});
  const CacheSettings some = settings_of_environment({.max_files = kUnlimited});
  for (const char* name :
       {"MOEJIT_CACHE_MAX_BYTES", "MOEJIT_CACHE_MAX_FILES", "MOEJIT_CACHE_NETWORK"})
    ::unsetenv(name);
  EXPECT_EQ(all.limits, (CacheLimits{.max_bytes = 7, .max_files = 8}));
  EXPECT_FALSE(all.writes_to_network);
  EXPECT_TRUE(all.problems.empty());
  EXPECT_EQ(some.limits, (CacheLimits{.max_bytes = 1 << 20, .max_files = kUnlimited}));
  EXPECT_TRUE(some.writes_to_network);
  EXPECT_TRUE(settings_of_environment({.writes_to_network = true}).writes_to_network);
}

TEST(CacheSettings, ComeFromTheEnvironmentAndForgiveMistakes) {
  ::setenv("MOEJIT_CACHE_MAX_BYTES", "1M", 1);
  ::setenv("MOEJIT_CACHE_MAX_FILES", "many", 1);
  ::setenv("MOEJIT_CACHE_NETWORK", "yes", 1);
  const CacheSettings settings = settings_of_environment();
  for (const char* name :
       {"MOEJIT_CACHE_MAX_BYTES", "MOEJIT_CACHE_MAX_FILES", "MOEJIT_CACHE_NETWORK"})
    ::unsetenv(name);
  EXPECT_EQ(settings.limits, (CacheLimits{.max_bytes = 1 << 20}));
  EXPECT_FALSE(settings.writes_to_network);
  EXPECT_EQ(settings.problems,
            (std::vector<std::string>{
                "MOEJIT_CACHE_MAX_FILES is \"many\", wanted a number such as 65536, 512M or 4G, or "
                "none; 65536 holds",
                "MOEJIT_CACHE_NETWORK is \"yes\", wanted read or write; read holds"}));
}

}  // namespace
}  // namespace moejit::cache
