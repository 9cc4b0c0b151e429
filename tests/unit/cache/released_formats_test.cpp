// SPDX-License-Identifier: Apache-2.0
// What versions of moejit have written that people have. Every later one reads it, or passes it
// over without a word: it is no damage, and an older moejit may need it still. Each format that is
// released gets a folder of its own in tests/fixtures/formats, which is never changed again.
#include "cache/pack.h"
#include "compiler/support/file.h"
#include "tests/unit/cache/cache_test.h"

#include <fmt/core.h>
#include <map>

namespace moejit::cache {
namespace {

namespace fs = std::filesystem;

const fs::path kFormats = MOEJIT_SOURCE_DIR "/tests/fixtures/formats";

class ReleasedFormats : public CacheTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    CacheTest::SetUp();
    fs::copy(kFormats / GetParam(), folder_, fs::copy_options::recursive);
    // Whatever the umask was when the sources were fetched.
    for (const auto& entry : fs::recursive_directory_iterator(folder_))
      fs::permissions(entry.path(), fs::perms(entry.is_directory() ? 0700 : 0600));
  }
  // The kernels that all fixtures hold, by their keys.
  static std::map<Digest, std::vector<std::byte>> kernels() {
    std::map<Digest, std::vector<std::byte>> all;
    for (int i = 0; i < 3; ++i) {
      std::string code;
      for (int j = 0; j <= i; ++j) code += fmt::format("code {}", i);
      const auto bytes = std::as_bytes(std::span(code));
      all[sha256(fmt::format("{}", i))] = {bytes.begin(), bytes.end()};
    }
    return all;
  }
  std::map<std::string, std::vector<std::byte>> files() const {
    std::map<std::string, std::vector<std::byte>> all;
    for (const auto& entry : fs::recursive_directory_iterator(folder_))
      if (entry.is_regular_file() && entry.path().filename() != "stats")
        all[entry.path().string()] = read_file(entry.path().string()).value();
    return all;
  }
};

TEST_P(ReleasedFormats, OfACacheIsReadOrPassedOver) {
  const auto before = files();
  ASSERT_EQ(before.size(), 5u);  // three entries and two packs
  const auto cache = open();
  ASSERT_TRUE(cache);
  for (const auto& [key, code] : kernels()) {
    const auto entry = cache->get(key);
    EXPECT_TRUE(!entry || entry->payload == code);
  }
  EXPECT_EQ(cache->counters().corrupt, 0);
  EXPECT_EQ(cache->statistics().quarantined_files, 0);
  EXPECT_EQ(warnings_, std::vector<std::string>());
  // A rollback finds everything as it was.
  for (const auto& [key, code] : kernels()) EXPECT_TRUE(cache->put(key, "{}", code));
  for (const auto& [path, bytes] : before) EXPECT_TRUE(fs::exists(path)) << path;
  for (const auto& [key, code] : kernels()) EXPECT_EQ(cache->get(key)->payload, code);
}

TEST_P(ReleasedFormats, OfAPackIsReadOrRefusedByItsVersion) {
  for (const char* name : {"kernels.moejitpack", "signed.moejitpack"}) {
    const auto pack = Pack::open((folder_ / name).string());
    if (!pack) {
      EXPECT_NE(pack.error().message.find("format version"), std::string::npos)
          << pack.error().message;
      continue;
    }
    EXPECT_EQ((*pack)->size(), 3);
    EXPECT_EQ((*pack)->signatures().size(), name[0] == 's' ? 1u : 0u);
    for (const auto& [key, code] : kernels()) {
      const auto entry = (*pack)->get(key);
      ASSERT_TRUE(entry) << entry.error().message;
      EXPECT_TRUE(!*entry || (*entry)->payload == code);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, ReleasedFormats, ::testing::Values("v1"));

TEST(ReleasedFormatsOnDisk, AreAllTested) {
  for (const auto& entry : fs::directory_iterator(kFormats))
    EXPECT_EQ(entry.path().filename(), "v1");
}

}  // namespace
}  // namespace moejit::cache
