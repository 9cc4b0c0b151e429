// SPDX-License-Identifier: Apache-2.0
// On the simulator, whose marks are the host's clock and whose launches end before they return:
// what a launch is does not matter to a hot run.
#include "runtime/measure/timed_launches.h"
#include "tests/support/matchers.h"
#include "tests/support/test_engine.h"

#include <chrono>
#include <gtest/gtest.h>
#include <vector>

namespace moejit::measure {
namespace {

using testing::succeeded;
using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point first, Clock::time_point last) {
  return std::chrono::duration<double>(last - first).count();
}

class HotRunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = runtime::open_simulator();
    ASSERT_TRUE(succeeded(device));
    device_ = std::move(*device);
    auto engine = testing::make_test_engine();
    ASSERT_TRUE(succeeded(engine));
    auto probe = ClockProbe::create(**engine, *device_);
    ASSERT_TRUE(succeeded(probe));
    probe_ = std::make_unique<ClockProbe>(std::move(*probe));
  }
  // Launches that busy the device for so long each.
  Result<HotRun> run(std::chrono::nanoseconds each, double seconds) {
    return run_hot(
        [this, each]() -> Result<void> {
          starts_.push_back(Clock::now());
          while (Clock::now() - starts_.back() < each) {
          }
          return {};
        },
        *device_, probe_.get(), seconds);
  }

  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<ClockProbe> probe_;
  std::vector<Clock::time_point> starts_;
};

TEST_F(HotRunTest, LastsAtLeastAsLongAsAsked) {
  const auto hot = run(std::chrono::microseconds(50), 0.02);
  ASSERT_TRUE(succeeded(hot));
  EXPECT_GE(hot->seconds, 0.02);
  EXPECT_GE(hot->microseconds, 50.0);
  EXPECT_GT(hot->megahertz, 0.0);
  EXPECT_NEAR(hot->microseconds * static_cast<double>(hot->launches), 1e6 * hot->seconds, 1e-3);
}

TEST_F(HotRunTest, HasNoClockWithoutAProbe) {
  const auto hot = run_hot([]() -> Result<void> { return {}; }, *device_, nullptr, 0.005);
  ASSERT_TRUE(succeeded(hot));
  EXPECT_GE(hot->seconds, 0.005);
  EXPECT_EQ(hot->megahertz, 0.0);
}

TEST_F(HotRunTest, WarmsUpForHalfOfThat) {
  const auto hot = run(std::chrono::microseconds(50), 0.02);
  ASSERT_TRUE(succeeded(hot));
  ASSERT_LT(static_cast<size_t>(hot->launches), starts_.size());
  const Clock::time_point first_hot = starts_[starts_.size() - static_cast<size_t>(hot->launches)];
  EXPECT_GE(seconds_between(starts_.front(), first_hot), 0.01);
}

TEST_F(HotRunTest, LaunchesOnceWhereALaunchIsLongEnough) {
  const auto hot = run(std::chrono::milliseconds(30), 0.02);
  ASSERT_TRUE(succeeded(hot));
  EXPECT_EQ(hot->launches, 1);
  EXPECT_GE(hot->microseconds, 30'000.0);
}

TEST_F(HotRunTest, DoesNotRunOutOfProbes) {
  // Launches that take no time: as many as fit into the run.
  const auto hot = run(std::chrono::nanoseconds(0), 0.05);
  ASSERT_TRUE(succeeded(hot));
  EXPECT_GE(hot->seconds, 0.05);
}

TEST_F(HotRunTest, EndsWithTheErrorOfALaunch) {
  int launches = 0;
  const auto hot = run_hot(
      [&launches]() -> Result<void> {
        if (++launches < 5) return {};
        return fail(Stage::kLaunch, ErrorCode::kDriver, "the fifth");
      },
      *device_, probe_.get(), 0.02);
  ASSERT_FALSE(hot.has_value());
  EXPECT_EQ(hot.error().message, "the fifth");
  EXPECT_EQ(launches, 5);
}

}  // namespace
}  // namespace moejit::measure
