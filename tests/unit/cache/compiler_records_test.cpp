// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/file.h"
#include "tests/unit/cache/cache_test.h"

#include <fstream>

namespace moejit::cache {
namespace {

namespace fs = std::filesystem;

class CompilerRecords : public CacheTest {
 protected:
  fs::path records() const { return folder_ / "cache" / "v2" / "compilers"; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(records() / name) << text;
  }
};

TEST_F(CompilerRecords, AreKeptOnceWhoeverWritesThem) {
  const auto cache = open();
  EXPECT_TRUE(cache->compilers().empty());
  const auto other = open();
  for (const char* text : {"b", "a", "b"}) {
    cache->add_compiler(text);
    other->add_compiler(text);
  }
  EXPECT_EQ(files_in(records()), 2u);
  // In the order of their digests: that of "b" is less.
  EXPECT_EQ(open()->compilers(), (std::vector<std::string>{"b", "a"}));
  EXPECT_TRUE(cache->keys().empty());
  EXPECT_EQ(cache->statistics().files, 0);
}

TEST_F(CompilerRecords, ThatAreDamagedAreNoneUntilTheyAreWrittenAgain) {
  const auto cache = open();
  cache->add_compiler("a");
  write(sha256("a").hex(), "x");
  write("name", "text");
  write(std::string(64, '0'), std::string(5000, ' '));
  fs::create_directory(records() / sha256("folder").hex());
  fs::create_symlink(records() / "name", records() / sha256("text").hex());
  EXPECT_TRUE(cache->compilers().empty());
  cache->add_compiler("a");
  EXPECT_EQ(cache->compilers(), std::vector<std::string>{"a"});
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(CompilerRecords, AreReadButNotMadeWhereTheFolderIsReadOnly) {
  open()->add_compiler("a");
  fs::permissions(folder_ / "cache", fs::perms(0755));
  fs::permissions(folder_ / "cache/v2", fs::perms(0555));
  fs::permissions(records(), fs::perms(0755));
  for (const auto& file : fs::directory_iterator(records()))
    fs::permissions(file.path(), fs::perms(0644));
  EXPECT_TRUE(unprivileged([this] {
    const auto cache = open();
    cache->add_compiler("b");
    return cache->compilers() == std::vector<std::string>{"a"} && warnings_.empty();
  }));
  fs::permissions(folder_ / "cache/v2", fs::perms(0755));
}

TEST_F(CompilerRecords, GoWhenTheCacheIsCleared) {
  const auto cache = open();
  cache->add_compiler("a");
  cache->clear();
  EXPECT_TRUE(cache->compilers().empty());
}

}  // namespace
}  // namespace moejit::cache
