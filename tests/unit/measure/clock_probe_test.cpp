// SPDX-License-Identifier: Apache-2.0
// The probe in the simulator, whose SM has 1 GHz by definition; tests/gpu has it on a GPU.
#include "runtime/measure/sm_clock.h"
#include "tests/support/matchers.h"
#include "tests/support/test_engine.h"
#include "tests/unit/measure/kernel_compiles.h"

#include <gtest/gtest.h>

namespace moejit::measure {
namespace {

using testing::succeeded;

class ClockProbeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = runtime::open_simulator();
    ASSERT_TRUE(succeeded(device));
    device_ = std::move(*device);
    auto engine = testing::make_test_engine();
    ASSERT_TRUE(succeeded(engine));
    engine_ = std::move(*engine);
  }
  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<runtime::Engine> engine_;
};

TEST_F(ClockProbeTest, CountsTheCyclesOfAtLeastTenMicroseconds) {
  auto probe = ClockProbe::create(*engine_, *device_);
  ASSERT_TRUE(succeeded(probe));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(succeeded(probe->run()));
  const auto samples = probe->take_samples();
  ASSERT_TRUE(succeeded(samples));
  ASSERT_EQ(samples->size(), 3u);
  for (const ClockSample& sample : *samples) {
    EXPECT_GE(sample.nanoseconds, 10000u);
    EXPECT_GT(sample.cycles, 0u);
  }
  // They are taken once.
  const auto none = probe->take_samples();
  ASSERT_TRUE(succeeded(none));
  EXPECT_TRUE(none->empty());
}

TEST_F(ClockProbeTest, RefusesMoreThanItHasRoomFor) {
  auto probe = ClockProbe::create(*engine_, *device_);
  ASSERT_TRUE(succeeded(probe));
  for (int i = 0; i < ClockProbe::kMostSamples; ++i) ASSERT_TRUE(succeeded(probe->run()));
  const auto refused = probe->run();
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kInternal);
}

TEST(ClockProbeSample, TellsMegahertz) {
  EXPECT_DOUBLE_EQ((ClockSample{.cycles = 17'850, .nanoseconds = 10'000}.megahertz()), 1785.0);
}

TEST(ClockProbeKernel, CompilesForTheGpu) { testing::expect_compiles(clock_probe_source({})); }

}  // namespace
}  // namespace moejit::measure
