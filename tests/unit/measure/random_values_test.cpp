// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/device_values.h"
#include "runtime/reference/number_formats.h"
#include "tests/support/matchers.h"
#include "tests/support/test_engine.h"
#include "tests/unit/measure/kernel_compiles.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <vector>

namespace moejit::measure {
namespace {

using testing::succeeded;

class RandomValuesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = runtime::open_simulator();
    ASSERT_TRUE(succeeded(device));
    device_ = std::move(*device);
    auto engine = testing::make_test_engine();
    ASSERT_TRUE(succeeded(engine));
    engine_ = std::move(*engine);
  }
  template <typename T>
  std::vector<T> values_of(compiler::DType dtype, int64_t count, uint64_t seed) {
    const auto memory = allocate_named(*device_, "values", static_cast<int64_t>(sizeof(T)) * count);
    EXPECT_TRUE(succeeded(memory));
    EXPECT_TRUE(succeeded(fill_random(*memory, dtype, seed, *engine_, *device_)));
    std::vector<T> values(static_cast<size_t>(count));
    EXPECT_TRUE(succeeded(device_->copy_to_host(values.data(), memory->address(), memory->bytes)));
    return values;
  }
  std::vector<uint16_t> values(int64_t count, uint64_t seed) {
    return values_of<uint16_t>(compiler::DType::kBF16, count, seed);
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

// The same numbers, 64 times larger.
TEST_F(RandomValuesTest, AreRoundedToE4m3) {
  const auto codes = values_of<uint8_t>(compiler::DType::kF8E4M3, 4096, 5);
  const std::vector<uint16_t> wanted = values(4096, 5);
  for (size_t i = 0; i < codes.size(); ++i) {
    const float value = 64.0f * reference::float_from_bf16(wanted[i]);
    // Half a step of e4m3 and half one of bf16.
    ASSERT_NEAR(reference::decode_e4m3(codes[i]), value,
                std::max(std::fabs(value) * (0x1p-4f + 0x1p-8f), 0x1p-10f))
        << i;
  }
}

TEST(RandomValuesKernel, CompilesForTheGpu) {
  for (const compiler::DType dtype : {compiler::DType::kBF16, compiler::DType::kF8E4M3})
    testing::expect_compiles(random_values_source(dtype, {}));
}

}  // namespace
}  // namespace moejit::measure
