// SPDX-License-Identifier: Apache-2.0
#include "compiler/nvrtc/nvrtc_api.h"

#include "compiler/support/dynamic_library.h"
#include "compiler/support/file.h"
#include "tests/support/matchers.h"
#include "tests/unit/nvrtc/contains.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <string>

namespace moejit::compiler {
namespace {

TEST(OpenNvrtc, SaysWhichLibraryWasAskedForAndWhyItDidNotDo) {
  const auto api = open_nvrtc({.library = "/no/such/libnvrtc.so", .folders = {}});
  ASSERT_FALSE(api.has_value());
  EXPECT_EQ(api.error().code, ErrorCode::kCompilerMissing);
  EXPECT_TRUE(contains(api.error().message, "MOEJIT_NVRTC = /no/such/libnvrtc.so"));
  EXPECT_TRUE(contains(api.error().detail, "No such file")) << api.error().detail;
  EXPECT_TRUE(contains(api.error().hint, "MOEJIT_NVRTC")) << api.error().hint;
}

TEST(OpenNvrtc, ListsTheFoldersItLookedIn) {
  const auto api =
      open_nvrtc({.library = "", .folders = {"/no/such/folder", "/nor/this"}, .ask_loader = false});
  ASSERT_FALSE(api.has_value());
  EXPECT_TRUE(contains(api.error().message, "libnvrtc.so.13 and libnvrtc.so.12"));
  EXPECT_TRUE(contains(api.error().message, "/no/such/folder, /nor/this")) << api.error().message;
}

TEST(OpenNvrtc, RefusesALibraryThatIsSomethingElse) {
  const auto api = open_nvrtc({.library = "libm.so.6", .folders = {}});
  ASSERT_FALSE(api.has_value());
  EXPECT_TRUE(contains(api.error().detail, "not an NVRTC library")) << api.error().detail;
}

TEST(OpenNvrtc, TellsVersionAndBuildIds) {
  const auto api = nvrtc();
  if (!api) GTEST_SKIP() << to_string(api.error());
  EXPECT_TRUE((*api)->is_at_least(12, 4));
  EXPECT_GE((*api)->build_id.size(), 16u);
  EXPECT_GE((*api)->builtins_build_id.size(), 16u);
  EXPECT_NE((*api)->build_id, (*api)->builtins_build_id);
}

TEST(ReleaseOfFiles, IsThatOfTheLibraryOnceOpened) {
  const auto told = release_of_files(default_nvrtc_search());
  if (!told) GTEST_SKIP() << "NVRTC is not found by its files on this machine";
  const auto api = nvrtc();
  ASSERT_TRUE(api) << to_string(api.error());
  EXPECT_EQ(*told, static_cast<const NvrtcRelease&>(**api));
  EXPECT_EQ(nvrtc_release().value(), *told);
}

TEST(ReleaseOfFiles, IsNoneWhereFilesDoNotTell) {
  const moejit::testing::TestDir dir;
  const std::string library = (dir / "libnvrtc.so.13").string();
  const auto told = [&] { return release_of_files({.library = library, .folders = {}}); };
  EXPECT_FALSE(told());
  ASSERT_TRUE(write_file(library, "no library"));
  ASSERT_TRUE(write_file((dir / "libnvrtc-builtins.so.13.0").string(), "nor this"));
  EXPECT_FALSE(told());  // no build ids
  // Any library with a build id will do.
  const auto api = nvrtc();
  if (!api) GTEST_SKIP() << to_string(api.error());
  const auto copy = [&](const std::string& name) {
    std::filesystem::remove(dir / name);
    std::filesystem::create_symlink((*api)->path, dir / name);
  };
  copy("libnvrtc.so.13");
  copy("libnvrtc-builtins.so.13.0");
  ASSERT_TRUE(told());
  EXPECT_EQ(told()->major, 13);
  EXPECT_EQ(told()->minor, 0);
  copy("libnvrtc-builtins.so.12.9");  // of another release
  EXPECT_TRUE(told());
  copy("libnvrtc-builtins.so.13.2");
  EXPECT_FALSE(told());                                                          // which one?
  EXPECT_FALSE(release_of_files({.library = "libnvrtc.so.13", .folders = {}}));  // the loader's
}

TEST(BuildIds, OfFilesAreThoseOfOpenLibraries) {
  const auto library = DynamicLibrary::open("libm.so.6");
  ASSERT_TRUE(library);
  EXPECT_GE(library->build_id().size(), 16u);
  EXPECT_EQ(build_id_of_file(library->path()), library->build_id());
  EXPECT_EQ(build_id_of_file("/nonexistent"), "");
  EXPECT_EQ(build_id_of_file("/proc/self/maps"), "");
  EXPECT_EQ(build_id_of_file("/proc"), "");
}

TEST(NvrtcVersion, IsComparedByMajorThenMinor) {
  NvrtcApi api{};
  api.major = 12;
  api.minor = 9;
  EXPECT_TRUE(api.is_at_least(12, 9));
  EXPECT_TRUE(api.is_at_least(11, 10));
  EXPECT_FALSE(api.is_at_least(12, 10));
  EXPECT_FALSE(api.is_at_least(13, 0));
}

}  // namespace
}  // namespace moejit::compiler
