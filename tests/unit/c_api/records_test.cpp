// SPDX-License-Identifier: Apache-2.0
// Records grow at the end: programs of older and newer versions.
#include "tests/support/matchers.h"
#include "tests/unit/c_api/last_error.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

namespace moejit::testing {
namespace {

// A record of a version that has 16 more bytes.
template <typename Record>
struct Newer {
  Record known{};
  std::array<unsigned char, 16> unknown{};
};

class CApiRecords : public ::testing::Test {
 protected:
  void TearDown() override {
    moejit_engine_destroy(engine_);
    moejit_device_destroy(device_);
  }
  std::string cache() {
    moejit_engine_info info = {};
    info.struct_size = sizeof(info);
    EXPECT_TRUE(is_ok(moejit_engine_get_info(engine_, &info)));
    return info.cache;
  }

  moejit_engine* engine_ = nullptr;
  moejit_device* device_ = nullptr;
};

TEST_F(CApiRecords, HaveFieldsOfZeroThatAnOlderProgramLacks) {
  const TestDir folder;
  const std::string path = folder.path().string();
  moejit_engine_options options = {};
  options.struct_size = offsetof(moejit_engine_options, memory_only);
  options.cache_dir = path.c_str();
  options.memory_only = 1;  // not the library's: the record ends before it
  ASSERT_TRUE(is_ok(moejit_engine_create(&options, &engine_)));
  EXPECT_EQ(cache(), path);
}

TEST_F(CApiRecords, MayBeNewerWhereTheyUseNothingNew) {
  Newer<moejit_engine_options> options;
  options.known.struct_size = sizeof(options);
  options.known.memory_only = 1;
  ASSERT_TRUE(is_ok(moejit_engine_create(&options.known, &engine_)));
  EXPECT_EQ(cache().substr(0, 12), "memory only:");
}

TEST_F(CApiRecords, AreRefusedWithFieldsThatTheLibraryDoesNotKnow) {
  Newer<moejit_engine_options> options;
  options.known.struct_size = sizeof(options);
  options.unknown.back() = 1;
  EXPECT_TRUE(is_error(moejit_engine_create(&options.known, &engine_), MOEJIT_ERROR_UNSUPPORTED,
                       "moejit_engine_options", std::to_string(sizeof(options) - 1)));
  EXPECT_EQ(engine_, nullptr);
}

TEST_F(CApiRecords, AreRefusedWithoutASize) {
  moejit_engine_options options = {};
  EXPECT_TRUE(is_error(moejit_engine_create(&options, &engine_), MOEJIT_ERROR_INVALID_VALUE,
                       "struct_size of moejit_engine_options is 0, wanted",
                       std::to_string(sizeof(options))));
  options.struct_size = sizeof(std::size_t) - 1;
  EXPECT_TRUE(is_error(moejit_engine_create(&options, &engine_), MOEJIT_ERROR_INVALID_VALUE));
  for (const std::size_t bytes : {12, 20, 52}) {  // of no version; half of a pointer
    options.struct_size = bytes;
    EXPECT_TRUE(is_error(moejit_engine_create(&options, &engine_), MOEJIT_ERROR_INVALID_VALUE));
  }
  options.struct_size = std::size_t{1} << 40;  // never read that far
  EXPECT_TRUE(is_error(moejit_engine_create(&options, &engine_), MOEJIT_ERROR_INVALID_VALUE));
  moejit_simulator_options simulator = {};
  EXPECT_TRUE(is_error(moejit_device_open_simulator(&simulator, &device_),
                       MOEJIT_ERROR_INVALID_VALUE, "moejit_simulator_options"));
  moejit_plan_options layer_options = {};
  moejit_plan* layer = nullptr;
  EXPECT_TRUE(is_error(
      moejit_plan_create(kTinyLayer, sizeof(kTinyLayer) - 1, "sim", &layer_options, &layer),
      MOEJIT_ERROR_INVALID_VALUE, "moejit_plan_options"));
}

TEST_F(CApiRecords, AreRefusedWithoutASizeWhereTheyAreFilled) {
  ASSERT_TRUE(is_ok(moejit_device_open_simulator(nullptr, &device_)));
  moejit_device_info info = {};
  EXPECT_TRUE(is_error(moejit_device_get_info(device_, &info), MOEJIT_ERROR_INVALID_VALUE,
                       "struct_size of moejit_device_info"));
  EXPECT_EQ(info.name, nullptr);
}

TEST_F(CApiRecords, AreFilledAsFarAsTheProgramKnowsThem) {
  ASSERT_TRUE(is_ok(moejit_device_open_simulator(nullptr, &device_)));
  moejit_device_info older;
  std::memset(&older, 0x7F, sizeof(older));
  const moejit_device_info untouched = older;
  older.struct_size = offsetof(moejit_device_info, target);
  ASSERT_TRUE(is_ok(moejit_device_get_info(device_, &older)));
  EXPECT_EQ(std::string_view(older.name), "simulator");
  EXPECT_EQ(older.struct_size, offsetof(moejit_device_info, target));
  EXPECT_EQ(older.target, untouched.target);
  EXPECT_EQ(older.sm_count, untouched.sm_count);

  Newer<moejit_device_info> newer;
  newer.unknown.fill(0x7F);
  newer.known.struct_size = sizeof(newer);
  ASSERT_TRUE(is_ok(moejit_device_get_info(device_, &newer.known)));
  EXPECT_EQ(newer.known.sm_count, 4);
  EXPECT_EQ(newer.unknown, decltype(newer.unknown){});
}

TEST_F(CApiRecords, AreCheckedWhereANumberIsOutOfRange) {
  moejit_simulator_options options = {};
  options.struct_size = sizeof(options);
  options.workers = -1;
  EXPECT_TRUE(is_error(moejit_device_open_simulator(&options, &device_), MOEJIT_ERROR_INVALID_VALUE,
                       "workers", "-1"));
}

}  // namespace
}  // namespace moejit::testing
