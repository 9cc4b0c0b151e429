// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/gpu_monitor.h"

#include <chrono>
#include <filesystem>
#include <gtest/gtest.h>
#include <thread>

namespace moejit::measure {
namespace {

constexpr const char* kPlace = "00000000:0f:00.0";

class GpuMonitorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(MOEJIT_FAKE_NVML)) GTEST_SKIP() << "no " << MOEJIT_FAKE_NVML;
    monitor_ = GpuMonitor::open(kPlace, MOEJIT_FAKE_NVML);
    ASSERT_NE(monitor_, nullptr);
  }
  std::unique_ptr<GpuMonitor> monitor_;
};

TEST_F(GpuMonitorTest, TellsTheSettingsOfTheGpu) {
  const GpuSettings settings = monitor_->settings();
  EXPECT_EQ(settings.driver_version, "580.0.1");
  EXPECT_EQ(settings.power_limit_watts, 700.0);
  EXPECT_EQ(settings.most_megahertz, 1980);
}

TEST_F(GpuMonitorTest, SamplesUntilItIsStopped) {
  monitor_->start();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const GpuSamples samples = monitor_->stop();
  ASSERT_GE(samples.count, 1);
  // 600, 610, 620, ... W
  EXPECT_EQ(samples.most_watts, 600.0 + 10.0 * (samples.count - 1));
  ASSERT_TRUE(samples.mean_watts.has_value());
  EXPECT_NEAR(*samples.mean_watts, 600.0 + 5.0 * (samples.count - 1), 1e-9);
  EXPECT_EQ(samples.mean_megahertz, 1500.0);
}

TEST_F(GpuMonitorTest, NamesTheReasonsButNotThatTheGpuWasIdle) {
  monitor_->start();
  const std::vector<std::string_view> wanted = {"sw_power_cap", "hw_thermal_slowdown"};
  EXPECT_EQ(monitor_->stop().throttle_reasons, wanted);
}

TEST_F(GpuMonitorTest, LeavesOutWhatTheLibraryDoesNotTell) {
  monitor_->start();
  EXPECT_EQ(monitor_->stop().most_degrees, std::nullopt);
}

TEST_F(GpuMonitorTest, ForgetsTheSamplesOfTheRunBefore) {
  monitor_->start();
  const GpuSamples first = monitor_->stop();
  EXPECT_EQ(monitor_->stop().count, 0);
  monitor_->start();
  const GpuSamples second = monitor_->stop();
  EXPECT_GE(second.mean_watts.value(), first.most_watts.value() + 10.0);
}

TEST_F(GpuMonitorTest, IsNotThereForAnotherGpu) {
  EXPECT_EQ(GpuMonitor::open("00000000:1f:00.0", MOEJIT_FAKE_NVML), nullptr);
}

TEST(GpuMonitorLibrary, MayBeAbsentOrSomethingElse) {
  EXPECT_EQ(GpuMonitor::open(kPlace, "/no/such/library.so"), nullptr);
  EXPECT_EQ(GpuMonitor::open(kPlace, "libm.so.6"), nullptr);
}

}  // namespace
}  // namespace moejit::measure
