// SPDX-License-Identifier: Apache-2.0
#include "cache/cache_folder.h"

#include "compiler/support/file.h"
#include "tests/unit/cache/cache_test.h"

#include <cstdlib>
#include <fmt/core.h>
#include <pwd.h>
#include <sys/stat.h>

namespace moejit::cache {
namespace {

class CacheFolderTest : public CacheTest {
 protected:
  std::string problem_of(const std::string& folder) {
    const auto cache = KernelCache::open(folder);
    if (cache) return "none";
    EXPECT_EQ(cache.error().code, ErrorCode::kCacheUnusable);
    return cache.error().message;
  }
};

TEST_F(CacheFolderTest, IsMadeWithTheFoldersAboveIt) {
  const std::string folder = root() + "/a/b/c";
  EXPECT_EQ(problem_of(folder), "none");
  EXPECT_TRUE(std::filesystem::is_directory(folder + "/v2/tmp"));
}

TEST_F(CacheFolderTest, MustNotBeWritableForOthers) {
  std::filesystem::create_directory(root());
  for (const unsigned mode : {0770u, 0707u, 0777u, 01777u}) {
    ASSERT_EQ(::chmod(root().c_str(), mode), 0);
    EXPECT_EQ(problem_of(root()),
              fmt::format("cache folder {}: its mode is {:04o}: other users may write to it, "
                          "wanted 0700",
                          root(), mode));
  }
  for (const unsigned mode : {0700u, 0750u, 0755u}) {
    ASSERT_EQ(::chmod(root().c_str(), mode), 0);
    EXPECT_EQ(problem_of(root()), "none");
  }
}

TEST_F(CacheFolderTest, MustNotHoldAVersionFolderThatOthersWriteTo) {
  EXPECT_EQ(problem_of(root()), "none");
  ASSERT_EQ(::chmod((root() + "/v2").c_str(), 0777), 0);
  EXPECT_NE(problem_of(root()), "none");
}

TEST_F(CacheFolderTest, MustBelongToTheUserOrToRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  std::filesystem::create_directory(root());
  ASSERT_EQ(::chown(root().c_str(), 12345, 12345), 0);
  EXPECT_EQ(
      problem_of(root()),
      fmt::format("cache folder {}: it belongs to user 12345, wanted user 0 (or root)", root()));
}

TEST_F(CacheFolderTest, MustBeAFolder) {
  ASSERT_TRUE(write_file(root(), "text"));
  EXPECT_EQ(problem_of(root()), fmt::format("cache folder {}: Not a directory", root()));
  EXPECT_EQ(problem_of(root() + "/below"),
            fmt::format("cache folder {}/below: Not a directory", root()));
}

TEST_F(CacheFolderTest, StaysWhereItIsWhenTheWorkingDirectoryChanges) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  const auto cache = KernelCache::open("cache/");
  std::filesystem::current_path(before);
  ASSERT_TRUE(cache);
  EXPECT_EQ((*cache)->folder(), root());
  EXPECT_TRUE((*cache)->put(sha256("key"), "{}", payload(10)));
  EXPECT_TRUE(std::filesystem::exists(path_of(sha256("key"))));
}

TEST_F(CacheFolderTest, SaysThatItCannotBeMadeOrWritten) {
  std::filesystem::permissions(folder_, std::filesystem::perms(0555));
  EXPECT_TRUE(unprivileged([&] {
    return problem_of(root()) ==
           fmt::format("cache folder {}: it cannot be made: Permission denied", root());
  }));
}

TEST_F(CacheFolderTest, ServesReadersWhereItIsReadOnly) {
  const Digest key = sha256("key");
  open()->put(key, "{}", payload(10));
  // As a platform team installs it: root's, readable for all, writable for nobody.
  std::filesystem::permissions(root(), std::filesystem::perms(0555));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root()))
    std::filesystem::permissions(entry, std::filesystem::perms(entry.is_directory() ? 0555 : 0444));
  EXPECT_TRUE(unprivileged([&] {
    const auto cache = KernelCache::open(root());
    return cache && !(*cache)->is_writable() && (*cache)->get(key) &&
           !(*cache)->put(sha256("other"), "{}", {}) && (*cache)->counters().failed_writes == 0;
  }));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root()))
    if (entry.is_directory()) std::filesystem::permissions(entry, std::filesystem::perms(0755));
  std::filesystem::permissions(root(), std::filesystem::perms(0755));
}

class DefaultFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames)
      if (const char* value = std::getenv(name)) before_.emplace_back(name, value);
    for (const char* name : kNames) ::unsetenv(name);
  }
  void TearDown() override {
    for (const char* name : kNames) ::unsetenv(name);
    for (const auto& [name, value] : before_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  static void set(const char* name, const char* value) { ::setenv(name, value, 1); }
  static std::string home_of_password_database() {
    const std::string home = ::getpwuid(::geteuid())->pw_dir;
    return home == "/" ? "" : home + "/.cache/moejit";
  }

  static constexpr const char* kNames[] = {"MOEJIT_CACHE_DIR", "XDG_CACHE_HOME", "HOME"};
  std::vector<std::pair<std::string, std::string>> before_;
};

TEST_F(DefaultFolderTest, TakesTheFirstVariableThatIsSet) {
  set("HOME", "/home/u");
  EXPECT_EQ(default_folder()->path, "/home/u/.cache/moejit");
  set("XDG_CACHE_HOME", "/caches");
  EXPECT_EQ(default_folder()->path, "/caches/moejit");
  EXPECT_FALSE(default_folder()->is_explicit);
  set("MOEJIT_CACHE_DIR", "/mine");
  EXPECT_EQ(default_folder()->path, "/mine");
  EXPECT_TRUE(default_folder()->is_explicit);
}

TEST_F(DefaultFolderTest, PassesOverEmptyAndRelativeValues) {
  set("HOME", "/home/u");
  set("MOEJIT_CACHE_DIR", "");
  for (const char* value : {"", "caches", "./caches", "/"}) {
    set("XDG_CACHE_HOME", value);
    EXPECT_EQ(default_folder()->path, "/home/u/.cache/moejit") << value;
  }
}

TEST_F(DefaultFolderTest, RefusesARelativeFolderThatTheUserNamed) {
  set("MOEJIT_CACHE_DIR", "caches");
  const auto folder = default_folder();
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().code, ErrorCode::kCacheUnusable);
  EXPECT_EQ(folder.error().message, "MOEJIT_CACHE_DIR is \"caches\", wanted an absolute path");
}

TEST_F(DefaultFolderTest, AsksThePasswordDatabaseWhereThereIsNoHome) {
  EXPECT_EQ(default_folder()->path, home_of_password_database());
  for (const char* value : {"", "/", "home/u"}) {
    set("HOME", value);
    EXPECT_EQ(default_folder()->path, home_of_password_database()) << value;
  }
}

}  // namespace
}  // namespace moejit::cache
