// SPDX-License-Identifier: Apache-2.0
#include "tests/support/matchers.h"
#include "tests/unit/c_api/last_error.h"

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace moejit::testing {
namespace {

class CApiEngine : public ::testing::Test {
 protected:
  void SetUp() override { options_.struct_size = sizeof(options_); }
  void TearDown() override { moejit_engine_destroy(engine_); }
  moejit_engine_info info() {
    moejit_engine_info info = {};
    info.struct_size = sizeof(info);
    EXPECT_TRUE(is_ok(moejit_engine_get_info(engine_, &info)));
    return info;
  }

  moejit_engine_options options_{};
  moejit_engine* engine_ = nullptr;
};

TEST_F(CApiEngine, UsesTheFolderThatItIsGiven) {
  const TestDir folder;
  const std::string path = folder.path().string();
  options_.cache_dir = path.c_str();
  ASSERT_TRUE(is_ok(moejit_engine_create(&options_, &engine_)));
  EXPECT_EQ(info().cache, path);
  EXPECT_EQ(info().compiled, 0);
  EXPECT_EQ(info().from_cache, 0);
}

TEST_F(CApiEngine, RefusesAFolderThatIsNone) {
  const TestDir folder;
  const std::string path = (folder / "file").string();
  std::ofstream(path) << "not a folder";
  options_.cache_dir = path.c_str();
  EXPECT_TRUE(
      is_error(moejit_engine_create(&options_, &engine_), MOEJIT_ERROR_CACHE_UNUSABLE, path));
  EXPECT_EQ(engine_, nullptr);
}

TEST_F(CApiEngine, TellsTheCallbackWhatIsNoError) {
  const TestDir folder;
  const std::string path = (folder / "file").string();
  std::ofstream(path) << "not a folder";
  ASSERT_EQ(unsetenv("MOEJIT_CACHE_DIR"), 0);
  ASSERT_EQ(setenv("XDG_CACHE_HOME", path.c_str(), 1), 0);  // of the default folder
  std::vector<std::string> told;
  options_.warn_context = &told;
  options_.warn = [](void* context, const char* text) {
    static_cast<std::vector<std::string>*>(context)->emplace_back(text);
  };
  ASSERT_TRUE(is_ok(moejit_engine_create(&options_, &engine_)));
  ASSERT_EQ(told.size(), 1);
  EXPECT_NE(told[0].find(path), std::string::npos) << told[0];
  EXPECT_EQ(std::string(info().cache).substr(0, 12), "memory only:");
}

TEST_F(CApiEngine, OpensThePacksThatItIsGivenAndNoOthers) {
  const TestDir folder;
  const std::string path = folder.path().string();
  options_.cache_dir = path.c_str();
  options_.packs = "/nonexistent/a.moejitpack";
  EXPECT_TRUE(is_error(moejit_engine_create(&options_, &engine_), MOEJIT_ERROR_FILE_NOT_FOUND,
                       "/nonexistent/a.moejitpack"));
  ASSERT_EQ(setenv("MOEJIT_PACKS", "/nonexistent/b.moejitpack", 1), 0);
  options_.packs = nullptr;
  EXPECT_TRUE(is_error(moejit_engine_create(&options_, &engine_), MOEJIT_ERROR_FILE_NOT_FOUND,
                       "/nonexistent/b.moejitpack"));
  options_.packs = "";
  ASSERT_TRUE(is_ok(moejit_engine_create(&options_, &engine_)));
  EXPECT_EQ(info().from_packs, 0);
  ASSERT_EQ(unsetenv("MOEJIT_PACKS"), 0);
}

}  // namespace
}  // namespace moejit::testing
