// SPDX-License-Identifier: Apache-2.0
#include "tests/support/matchers.h"
#include "tests/unit/c_api/last_error.h"

#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
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

// What 0 leaves to the environment.
TEST_F(CApiEngine, RefusesValuesOutOfRange) {
  const auto refuses = [this](auto moejit_engine_options::*field, auto value, const char* name) {
    moejit_engine_options options = options_;
    options.memory_only = 1;
    options.*field = value;
    EXPECT_TRUE(is_error(moejit_engine_create(&options, &engine_), MOEJIT_ERROR_INVALID_VALUE, name,
                         std::to_string(value)));
    options.*field = 0;
    EXPECT_TRUE(is_ok(moejit_engine_create(&options, &engine_)));
    moejit_engine_destroy(engine_);
    engine_ = nullptr;
  };
  refuses(&moejit_engine_options::cache_max_bytes, -1, "cache_max_bytes");
  refuses(&moejit_engine_options::cache_max_files, -7, "cache_max_files");
  refuses(&moejit_engine_options::cache_network, 3, "cache_network");
  refuses(&moejit_engine_options::compile_jobs, -2, "compile_jobs");
}

// Where the variable would be an error, it was not read.
TEST_F(CApiEngine, ReadsNoVariableOfWhichTheFieldIsSet) {
  options_.memory_only = 1;
  ASSERT_EQ(setenv("MOEJIT_LOCK_SECONDS", "soon", 1), 0);
  EXPECT_TRUE(is_error(moejit_engine_create(&options_, &engine_), MOEJIT_ERROR_INVALID_VALUE,
                       "MOEJIT_LOCK_SECONDS"));
  for (const int64_t patience : {int64_t{-1}, int64_t{1}, INT64_MAX}) {
    options_.lock_patience_ms = patience;
    EXPECT_TRUE(is_ok(moejit_engine_create(&options_, &engine_))) << patience;
    moejit_engine_destroy(engine_);
    engine_ = nullptr;
  }
  ASSERT_EQ(unsetenv("MOEJIT_LOCK_SECONDS"), 0);
  ASSERT_EQ(setenv("MOEJIT_COMPILE_JOBS", "few", 1), 0);
  EXPECT_TRUE(is_error(moejit_engine_create(&options_, &engine_), MOEJIT_ERROR_INVALID_VALUE,
                       "MOEJIT_COMPILE_JOBS"));
  options_.compile_jobs = 1;
  EXPECT_TRUE(is_ok(moejit_engine_create(&options_, &engine_)));
  ASSERT_EQ(unsetenv("MOEJIT_COMPILE_JOBS"), 0);
}

TEST_F(CApiEngine, IsSharedByAllThreadsOnceItIsCreated) {
  options_.compile_jobs = -1;
  EXPECT_TRUE(is_error(moejit_engine_shared(&options_, &engine_), MOEJIT_ERROR_INVALID_VALUE));
  options_.compile_jobs = 1;
  options_.memory_only = 1;
  std::vector<moejit_engine*> engines(4);
  std::vector<moejit_device*> devices(4);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < engines.size(); ++i)
    threads.emplace_back([&, i] {
      EXPECT_TRUE(is_ok(moejit_engine_shared(&options_, &engines[i])));
      EXPECT_TRUE(is_ok(moejit_device_shared({kDLCPU, 0}, &devices[i])));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(engines[0], nullptr);
  EXPECT_NE(devices[0], nullptr);
  EXPECT_EQ(engines, std::vector(engines.size(), engines[0]));
  EXPECT_EQ(devices, std::vector(devices.size(), devices[0]));
  options_.compile_jobs = -1;  // which nobody reads any more
  moejit_engine* again = nullptr;
  EXPECT_TRUE(is_ok(moejit_engine_shared(&options_, &again)));
  EXPECT_EQ(again, engines[0]);
  moejit_device* device = nullptr;
  EXPECT_TRUE(is_error(moejit_device_shared({kDLROCM, 0}, &device), MOEJIT_ERROR_INVALID_VALUE,
                       "has the device type 10, wanted 1"));
}

}  // namespace
}  // namespace moejit::testing
