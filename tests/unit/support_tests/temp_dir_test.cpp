// SPDX-License-Identifier: Apache-2.0
#include "tests/support/temp_dir.h"

#include "tests/support/matchers.h"

#include <fstream>
#include <gtest/gtest.h>

namespace moejit::testing {
namespace {

namespace fs = std::filesystem;

TEST(TempDir, IsPrivateAndRemovedWithItsFiles) {
  fs::path path;
  {
    const TempDir dir("a name/with..odd characters");
    path = dir.path();
    ASSERT_TRUE(fs::is_directory(path));
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
    fs::create_directory(dir / "folder");
    std::ofstream(dir / "folder/file") << "text";
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(TempDir, StaysWhenKept) {
  fs::path path;
  {
    TempDir dir;
    dir.keep();
    path = dir.path();
  }
  EXPECT_TRUE(fs::exists(path));
  fs::remove_all(path);
}

TEST(TempDir, TwoOfOneNameDiffer) {
  const TempDir first("same"), second("same");
  EXPECT_NE(first.path(), second.path());
}

TEST(TestDir, IsNamedAfterTheTest) {
  const TestDir dir;
  EXPECT_NE(dir.path().filename().string().find("TestDir-IsNamedAfterTheTest"), std::string::npos);
}

}  // namespace
}  // namespace moejit::testing
