// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/random_values.h"

#include "tests/support/matchers.h"
#include "tests/support/reference/number_formats.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <vector>

namespace moejit::cli {
namespace {

using testing::succeeded;

class RandomValuesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = runtime::open_simulator();
    ASSERT_TRUE(succeeded(device));
    device_ = std::move(*device);
    auto engine = runtime::Engine::create({.use_cache = false});
    ASSERT_TRUE(succeeded(engine));
    engine_ = std::move(*engine);
  }
  std::vector<uint16_t> values(int64_t count, uint64_t seed) {
    const auto random = RandomValues::create(*engine_, *device_);
    EXPECT_TRUE(succeeded(random));
    void* memory = device_->allocate(2 * count).value();
    EXPECT_TRUE(succeeded(random->fill(memory, count, seed)));
    std::vector<uint16_t> values(static_cast<size_t>(count));
    EXPECT_TRUE(succeeded(device_->copy_to_host(values.data(), memory, 2 * count)));
    device_->release(memory);
    return values;
  }
  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<runtime::Engine> engine_;
};

TEST_F(RandomValuesTest, HaveMean0AndVariance1AndTailsLikeNormalOnes) {
  constexpr int64_t kCount = 1 << 16;
  double sum = 0.0, squares = 0.0;
  int64_t beyond_2 = 0;
  for (const uint16_t bits : values(kCount, 7)) {
    const double value = reference::float_from_bf16(bits);
    sum += value;
    squares += value * value;
    beyond_2 += std::fabs(value) > 2.0 ? 1 : 0;
  }
  // Five deviations of the mean of so many values, and of their squares (whose own deviation is
  // below sqrt(2)).
  EXPECT_NEAR(sum / kCount, 0.0, 5.0 / 256);
  EXPECT_NEAR(squares / kCount, 1.0, 5.0 * 1.415 / 256);
  EXPECT_NEAR(static_cast<double>(beyond_2) / kCount, 0.0455, 0.006);
}

TEST_F(RandomValuesTest, DependOnSeedAndIndexAlone) {
  const std::vector<uint16_t> few = values(24, 1);
  const std::vector<uint16_t> many = values(4096, 1);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
  EXPECT_NE(many, values(4096, 2));
  // No run of eight comes twice.
  std::vector<std::vector<uint16_t>> runs;
  for (size_t i = 0; i < many.size(); i += 8)
    runs.emplace_back(many.begin() + static_cast<std::ptrdiff_t>(i),
                      many.begin() + static_cast<std::ptrdiff_t>(i) + 8);
  std::ranges::sort(runs);
  EXPECT_EQ(std::ranges::adjacent_find(runs), runs.end());
}

TEST(RandomValuesKernel, CompilesForTheGpu) {
  const auto engine = runtime::Engine::create({.use_cache = false});
  ASSERT_TRUE(succeeded(engine));
  const auto binary = (*engine)->binary(random_values_source({}));
  if (!binary && binary.error().code == ErrorCode::kCompilerMissing)
    GTEST_SKIP() << to_string(binary.error());
  ASSERT_TRUE(succeeded(binary));
  EXPECT_EQ((*binary)->usage->stack_bytes, 0);
}

}  // namespace
}  // namespace moejit::cli
