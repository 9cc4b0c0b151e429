// SPDX-License-Identifier: Apache-2.0
#include "compiler/nvrtc/nvrtc_api.h"

#include "tests/support/matchers.h"

#include <gtest/gtest.h>
#include <string>

namespace moejit::compiler {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

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
