// SPDX-License-Identifier: Apache-2.0
// Whatever happens to the bytes of a file of the cache, nobody is served them.
#include "cache/kernel_cache.h"
#include "compiler/support/file.h"
#include "tests/unit/cache/cache_test.h"

#include <fmt/core.h>
#include <fstream>

namespace moejit::cache {
namespace {

class IntegrityTest : public CacheTest {
 protected:
  void SetUp() override {
    CacheTest::SetUp();
    open()->put(kKey, R"({"entry":"f"})", payload(50));
    good_ = read_file(path_of(kKey).string()).value();
  }

  // What one get() makes of these bytes: a miss, one corrupt entry and one file more in quarantine.
  void expect_detected(const std::vector<std::byte>& bytes, const std::string& what) {
    std::filesystem::remove_all(root() + "/v2/quarantine");
    std::filesystem::create_directory(root() + "/v2/quarantine");
    // Without the fsync of write_file().
    std::ofstream(path_of(kKey), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
    const auto cache = KernelCache::open(root()).value();
    EXPECT_FALSE(cache->get(kKey)) << what;
    EXPECT_EQ(cache->counters().corrupt, 1) << what;
    EXPECT_EQ(cache->counters().hits, 0) << what;
    EXPECT_EQ(files_in(root() + "/v2/quarantine"), 1u) << what;
    EXPECT_FALSE(std::filesystem::exists(path_of(kKey))) << what;
  }

  std::vector<std::byte> good_;
};

TEST_F(IntegrityTest, EveryFlippedByteOfAnEntryIsDetectedQuarantinedAndCounted) {
  for (size_t i = 0; i < good_.size(); ++i)
    for (const std::byte change : {std::byte{0x01}, std::byte{0x80}, std::byte{0xFF}}) {
      std::vector<std::byte> bad = good_;
      bad[i] ^= change;
      expect_detected(bad, fmt::format("byte {}", i));
    }
}

TEST_F(IntegrityTest, EveryTruncationOfAnEntryIsDetectedQuarantinedAndCounted) {
  for (size_t bytes = 0; bytes < good_.size(); ++bytes)
    expect_detected({good_.begin(), good_.begin() + static_cast<std::ptrdiff_t>(bytes)},
                    fmt::format("{} bytes", bytes));
}

TEST_F(IntegrityTest, BytesBehindAnEntryAreDetectedQuarantinedAndCounted) {
  for (const size_t more : {1u, 31u, 32u, 64u, 4096u}) {
    std::vector<std::byte> longer = good_;
    longer.resize(good_.size() + more);
    expect_detected(longer, fmt::format("{} more", more));
  }
  std::vector<std::byte> twice = good_;
  twice.insert(twice.end(), good_.begin(), good_.end());
  expect_detected(twice, "twice");
}

TEST_F(IntegrityTest, ATruncatedLargeEntryIsDetectedAtEachOfTenThousandLengths) {
  const std::vector<std::byte> file = encode_entry(kKey, "{}", payload(100'000));
  for (size_t i = 0; i < 10'000; ++i) {
    const size_t bytes = i * 10 + i % 7;
    ASSERT_FALSE(decode_entry(std::span(file).first(bytes), kKey)) << bytes;
  }
}

// Files that were written once are read, or ignored with a reason, by every later version. Those
// with 1 in their names have the format of that number.
TEST(Fixtures, AreReadOrIgnored) {
  const std::string folder = MOEJIT_SOURCE_DIR "/tests/fuzz/corpus/entry/";
  const Digest key =
      Digest::from_hex("1111111111111111111111111111111111111111111111111111111111111111").value();
  for (const char* name : {"plain", "plain_1"}) {
    const auto plain = decode_entry(read_file(folder + name).value(), key);
    ASSERT_TRUE(plain) << name;
    EXPECT_EQ(plain->metadata, R"({"entry":"f","target":"sim"})") << name;
    EXPECT_EQ(plain->payload.size(), 4u) << name;
  }
  for (const char* name : {"empty", "empty_1"})
    EXPECT_TRUE(decode_entry(read_file(folder + name).value(), key)) << name;
  const auto other = decode_entry(read_file(folder + "other_version").value(), key);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().message, "its format version is 3, wanted 2");
}

TEST(Fixtures, OfFormat1AreVerifiedToTheLastBit) {
  const std::string path = MOEJIT_SOURCE_DIR "/tests/fuzz/corpus/entry/plain_1";
  const std::vector<std::byte> good = read_file(path).value();
  const Digest key =
      Digest::from_hex("1111111111111111111111111111111111111111111111111111111111111111").value();
  for (size_t i = 0; i < good.size() * 8; ++i) {
    std::vector<std::byte> bad = good;
    bad[i / 8] ^= std::byte(1 << (i % 8));
    ASSERT_FALSE(decode_entry(bad, key)) << "bit " << i;
  }
  for (size_t bytes = 0; bytes < good.size(); ++bytes)
    ASSERT_FALSE(decode_entry(std::span(good).first(bytes), key)) << bytes << " bytes";
}

// An earlier moejit kept its entries in v1, and may be rolled back to.
class EarlierCache : public CacheTest {
 protected:
  void SetUp() override {
    CacheTest::SetUp();
    std::filesystem::create_directories(old_entry().parent_path());
    std::filesystem::permissions(root(), std::filesystem::perms(0700));
    std::filesystem::copy_file(MOEJIT_SOURCE_DIR "/tests/fuzz/corpus/entry/plain_1", old_entry());
  }
  std::filesystem::path old_entry() const {
    const std::string hex = key_.hex();
    return folder_ / "cache/v1" / hex.substr(0, 2) / hex.substr(2);
  }
  const Digest key_ =
      Digest::from_hex("1111111111111111111111111111111111111111111111111111111111111111").value();
};

TEST_F(EarlierCache, IsAMissAndStaysAsItIs) {
  const auto before = read_file(old_entry().string()).value();
  const auto cache = open();
  EXPECT_FALSE(cache->get(key_));
  EXPECT_EQ(cache->counters().misses, 1);
  EXPECT_EQ(cache->counters().corrupt, 0);
  EXPECT_TRUE(cache->put(key_, "{}", payload(10)));
  EXPECT_TRUE(cache->get(key_));
  EXPECT_TRUE(cache->quarantined().empty());
  EXPECT_TRUE(warnings_.empty());
  EXPECT_EQ(read_file(old_entry().string()).value(), before);
}

TEST_F(EarlierCache, IsAMissWhereNothingMayBeWritten) {
  std::filesystem::permissions(root(), std::filesystem::perms(0555));
  EXPECT_TRUE(unprivileged([this] {
    const auto cache = KernelCache::open(root());
    return cache && !(*cache)->get(key_) && !(*cache)->is_writable();
  }));
}

TEST_F(EarlierCache, GoesWhenTheCacheIsCleared) {
  const auto cache = open();
  EXPECT_TRUE(cache->put(key_, "{}", payload(10)));
  EXPECT_EQ(cache->clear(), 1);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "cache/v1"));
}

}  // namespace
}  // namespace moejit::cache
