// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/versioned_kernel.h"

#include "tests/support/matchers.h"
#include "tests/support/test_engine.h"
#include "tests/unit/measure/kernel_compiles.h"

#include <gtest/gtest.h>
#include <vector>

namespace moejit::measure {
namespace {

using compiler::Choices;
using testing::succeeded;

constexpr int64_t kWords = 5000;

class VersionedKernelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    device_ = runtime::open_simulator().value();
    engine_ = testing::make_test_engine().value();
    memory_ = runtime::DeviceMemory::allocate(*device_, 4 * kWords).value();
    kernel_.candidates = {{{"version", 0}}, {{"version", 1}}, {{"version", 2}}};
    kernel_.written = {{.address = memory_.address(), .bytes = 4 * kWords}};
    // Version 2 writes other bytes behind word 4000.
    kernel_.make = [this](const Choices& choices) -> Result<Launch> {
      const int64_t version = choices.at("version");
      return Launch([this, version]() -> Result<void> {
        auto* const bytes = static_cast<std::byte*>(memory_.address());
        MOEJIT_TRY(device_->fill(bytes, std::byte{7}, 4 * kWords, nullptr));
        if (version != 2) return {};
        return device_->fill(bytes + 16000, std::byte{8}, 4 * (kWords - 4000), nullptr);
      });
    };
  }

  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<runtime::Engine> engine_;
  runtime::DeviceMemory memory_;
  VersionedKernel kernel_;
};

TEST_F(VersionedKernelTest, CountsTheWordsInWhichMemoriesDiffer) {
  auto counter = DifferenceCounter::create(*engine_, *device_);
  ASSERT_TRUE(succeeded(counter));
  std::vector<uint32_t> a(kWords, 3), b(kWords, 3);
  for (const std::size_t i : {0, 1, 255, 256, 4999}) b[i] = 4;
  auto on_device = [&](const std::vector<uint32_t>& values) {
    return runtime::upload_named(*device_, "values", values).value();
  };
  const auto one = on_device(a), other = on_device(b);
  EXPECT_EQ(counter->count(one.address(), other.address(), one.bytes).value(), 5);
  EXPECT_EQ(counter->count(one.address(), one.address(), one.bytes).value(), 0);
  EXPECT_EQ(counter->count(one.address(), other.address(), 8).value(), 2);
  EXPECT_EQ(counter->count(one.address(), other.address(), 0).value(), 0);
}

TEST_F(VersionedKernelTest, ComparesVersionsWithTheUsualOne) {
  auto comparison = VersionComparison::create(kernel_, *engine_, *device_);
  ASSERT_TRUE(succeeded(comparison));
  EXPECT_EQ(comparison->make(kernel_.candidates[1])->differing_words, 0);
  EXPECT_EQ(comparison->make(kernel_.candidates[2])->differing_words, 1000);
  EXPECT_EQ(comparison->make(kernel_.candidates[1])->differing_words, 0);
}

// The poison of new results is still there where a version writes nothing.
TEST_F(VersionedKernelTest, SeesWhatAVersionDoesNotWrite) {
  auto comparison = VersionComparison::create(kernel_, *engine_, *device_);
  ASSERT_TRUE(succeeded(comparison));
  kernel_.make = [this](const Choices&) -> Result<Launch> {
    return Launch([this] {
      return device_->fill(memory_.address(), std::byte{7}, 4 * (kWords - 1), nullptr);
    });
  };
  EXPECT_EQ(comparison->make(kernel_.candidates[1])->differing_words, 1);
}

TEST_F(VersionedKernelTest, TimesBlocksInTheirOrder) {
  std::string order;
  const Launch one = [&]() -> Result<void> {
    order += 'a';
    return {};
  };
  const Launch other = [&]() -> Result<void> {
    order += 'b';
    return {};
  };
  const std::vector<LaunchBlock> blocks = {{&one, 2}, {&other, 3}, {&one, 1}};
  const auto times = time_blocks(blocks, *device_);
  ASSERT_TRUE(succeeded(times));
  EXPECT_EQ(order, "aabbba");
  ASSERT_EQ(times->size(), 3U);
  for (const double microseconds : *times) EXPECT_GT(microseconds, 0.0);
}

TEST(LaunchesOfABlock, AreFiveAtLeast) {
  EXPECT_EQ(launches_for(0.015, 100.0), 150);
  EXPECT_EQ(launches_for(0.015, 1e6), 5);
  EXPECT_EQ(launches_for(0.0, 1.0), 5);
}

TEST(DifferenceCounterKernel, CompilesForTheGpu) {
  testing::expect_compiles(difference_counter_source({}));
}

}  // namespace
}  // namespace moejit::measure
