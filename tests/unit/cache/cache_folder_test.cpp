// SPDX-License-Identifier: Apache-2.0
#include "cache/cache_folder.h"

#include "compiler/support/file.h"
#include "tests/unit/cache/cache_test.h"

#include <cstdlib>
#include <fmt/core.h>
#include <functional>
#include <pwd.h>
#include <sys/stat.h>
#include <tuple>

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

// Every level counts: who can write to one of them decides what code runs.
TEST_F(CacheFolderTest, ServesNothingThatOthersMayWriteTo) {
  const Digest key = sha256("key");
  ASSERT_TRUE(open()->put(key, "{}", payload(10)));
  const std::filesystem::path file = path_of(key), folder = file.parent_path();
  for (const auto& [path, mode, good] :
       {std::tuple(file, 0666u, 0600u), std::tuple(file, 0620u, 0600u),
        std::tuple(folder, 0777u, 0700u), std::tuple(folder, 01777u, 0700u)}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    warnings_.clear();
    const auto cache = open();
    EXPECT_FALSE(cache->get(key)) << path;
    EXPECT_FALSE(cache->get(key));
    ASSERT_EQ(warnings_.size(), 1u);
    EXPECT_NE(warnings_[0].find(fmt::format("{}: its mode is {:04o}: other users may write to it",
                                            path.string(), mode)),
              std::string::npos)
        << warnings_[0];
    EXPECT_NE(warnings_[0].find("chmod -R go-w " + root()), std::string::npos) << warnings_[0];
    EXPECT_NE(cache->inspect(key)->problem.find("other users may write to it"), std::string::npos);
    ASSERT_EQ(::chmod(path.c_str(), good), 0);
    EXPECT_TRUE(open()->get(key));
  }
}

// A new kernel takes the place of a file that others may write to, but goes into no such folder.
TEST_F(CacheFolderTest, WritesWhereNobodyElseWrites) {
  const Digest key = sha256("key");
  ASSERT_TRUE(open()->put(key, "{}", payload(10)));
  ASSERT_EQ(::chmod(path_of(key).c_str(), 0666), 0);
  EXPECT_TRUE(open()->put(key, "{}", payload(10)));
  EXPECT_TRUE(open()->get(key));
  for (const std::filesystem::path& folder :
       {path_of(key).parent_path(), folder_ / "cache/v2/tmp"}) {
    ASSERT_EQ(::chmod(folder.c_str(), 0777), 0);
    const auto cache = open();
    EXPECT_FALSE(cache->put(key, "{}", payload(20)));
    EXPECT_NE(cache->write_problem().find("chmod -R go-w " + root()), std::string::npos)
        << cache->write_problem();
    ASSERT_EQ(::chmod(folder.c_str(), 0700), 0);
  }
}

TEST_F(CacheFolderTest, HintsMendAWholeFolderThatWasOpenedToAll) {
  const Digest key = sha256("key");
  ASSERT_TRUE(open()->put(key, "{}", payload(10)));
  ASSERT_EQ(::system(("chmod -R 777 " + root()).c_str()), 0);  // NOLINT(concurrency-mt-unsafe)
  const auto refused = KernelCache::open(root());
  ASSERT_FALSE(refused);
  const std::string hint = refused.error().hint;
  const std::string command = hint.substr(0, hint.find(','));
  EXPECT_EQ(command, "chmod -R go-w " + root());
  ASSERT_EQ(::system(command.c_str()), 0);  // NOLINT(concurrency-mt-unsafe)
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root()))
    EXPECT_EQ(entry.status().permissions() & std::filesystem::perms(0022),
              std::filesystem::perms::none)
        << entry;
  EXPECT_TRUE(open()->get(key));
}

TEST_F(CacheFolderTest, EntriesMustBelongToTheUserOrToRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  const Digest key = sha256("key");
  ASSERT_TRUE(open()->put(key, "{}", payload(10)));
  for (const std::filesystem::path& path : {path_of(key), path_of(key).parent_path()}) {
    ASSERT_EQ(::chown(path.c_str(), 12345, 12345), 0);
    warnings_.clear();
    EXPECT_FALSE(open()->get(key));
    ASSERT_EQ(warnings_.size(), 1u);
    EXPECT_NE(warnings_[0].find("it belongs to user 12345"), std::string::npos) << warnings_[0];
    ASSERT_EQ(::chown(path.c_str(), 0, 0), 0);
  }
}

// The cache moves folders, pipes and links in a file's place aside, and never waits for one.
TEST_F(CacheFolderTest, RecoversFromWhatIsOfTheWrongKind) {
  const Digest key = sha256("key");
  const std::filesystem::path v2 = folder_ / "cache/v2";
  const auto make_folder = [](const std::filesystem::path& path) {
    std::filesystem::create_directories(path / "below");
  };
  const auto make_file = [](const std::filesystem::path& path) {
    EXPECT_TRUE(write_file(path.string(), "text"));
  };
  const auto make_pipe = [](const std::filesystem::path& path) {
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
  };
  const auto make_link = [](const std::filesystem::path& path) {
    std::filesystem::create_symlink("/dev/null", path);
  };
  using Make = std::function<void(const std::filesystem::path&)>;
  for (const Make& make : {Make(make_folder), Make(make_file), Make(make_pipe), Make(make_link)}) {
    for (const std::filesystem::path& path : {path_of(key), path_of(key).parent_path(), v2 / "tmp",
                                              v2 / "quarantine", v2 / "stats", v2 / "compilers"}) {
      ASSERT_TRUE(open()->put(key, "{}", payload(10)));
      std::filesystem::remove_all(path);
      make(path);
      {
        const auto cache = open();
        cache->add_compiler("a compiler");
        static_cast<void>(cache->get(key));
        EXPECT_TRUE(cache->put(key, "{}", payload(10))) << path;
      }
      EXPECT_TRUE(open()->get(key)) << path;
      EXPECT_EQ(open()->compilers().size(), 1u) << path;

      std::filesystem::remove_all(path);
      make(path);
      open()->clear();
      for (const auto& left : std::filesystem::recursive_directory_iterator(v2))
        EXPECT_TRUE(left.is_directory() || left.path().filename() == "stats") << left.path();
      EXPECT_TRUE(open()->put(key, "{}", payload(10))) << path;
    }
  }
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
