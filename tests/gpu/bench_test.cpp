// SPDX-License-Identifier: Apache-2.0
// What `moejit bench` measures, on a layer so small that the figures mean nothing: that each kernel
// runs on the right data as often as it is said to, and that the clock is a GPU's.
#include "runtime/trial/measure_trial.h"
#include "runtime/trial/random_layer_inputs.h"
#include "runtime/trial/trial.h"
#include "tests/gpu/test_layer.h"
#include "tests/support/matchers.h"

#include <gtest/gtest.h>

namespace moejit::testing {
namespace {

using measure::ClockProbe;
using measure::HotRun;
using trial::Trial;

constexpr int64_t kTokens = 24;

compiler::Layer layer(std::vector<compiler::Pass> passes = {compiler::Pass::kForward}) {
  return {.name = "small",
          .experts = 4,
          .local_experts = 4,
          .top_k = 2,
          .hidden = 144,
          .intermediate = 128,
          .recipe = compiler::Recipe::kFp8Flow,
          .splits_alignment = 16,
          .max_tokens = kTokens,
          .max_permuted_rows = 256,
          .passes = std::move(passes)};
}

class BenchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_device().device == nullptr) GTEST_SKIP() << test_device().reason;
    auto probe = ClockProbe::create(*test_device().engine, *test_device().device);
    ASSERT_TRUE(succeeded(probe));
    probe_ = std::make_unique<ClockProbe>(std::move(*probe));
    session_ = create_session(layer());
  }
  static std::unique_ptr<Trial> create_session(const compiler::Layer& layer) {
    runtime::TensorMap inputs = trial::random_tokens(layer, kTokens, {1});
    inputs.merge(trial::random_weights_of(layer, layer.local_experts, 1));
    if (has_backward(layer)) inputs.merge(trial::random_gradient(layer, kTokens, 1));
    const auto plan = plan_layer(layer, test_device().device->target(), {.measure_gemms = true});
    EXPECT_TRUE(succeeded(plan));
    auto session = Trial::create(*plan, *test_device().engine, *test_device().device,
                                 trial::call_of(std::move(inputs)));
    EXPECT_TRUE(succeeded(session));
    return std::move(*session);
  }
  static runtime::HostTensor read(Trial& session, std::string_view name) {
    auto tensor = session.read(*find_tensor(session.plan(), name));
    EXPECT_TRUE(succeeded(tensor));
    return std::move(*tensor);
  }
  // The SMs of Hopper GPUs run at 200 to 2000 MHz.
  static void expect_clock(double megahertz) {
    EXPECT_GT(megahertz, test_device().is_simulator() ? 0.0 : 200.0);
    EXPECT_LT(megahertz, test_device().is_simulator() ? 1e6 : 2200.0);
  }

  std::unique_ptr<ClockProbe> probe_;
  std::unique_ptr<Trial> session_;
};

TEST_F(BenchTest, HotRunsTakeEveryKernelAndLeaveTheResultsOfAPass) {
  const std::unique_ptr<Trial> once = create_session(layer());
  ASSERT_TRUE(succeeded(once->call("update_weights")));
  ASSERT_TRUE(succeeded(once->call("forward")));

  constexpr double kSeconds = 0.002;
  const auto runs = measure_hot(*session_, *probe_, kSeconds);
  ASSERT_TRUE(succeeded(runs));
  ASSERT_EQ(runs->size(), session_->plan().kernels.size());
  for (const HotRun& run : *runs) {
    EXPECT_GE(run.launches, 1);
    EXPECT_GE(run.seconds, kSeconds);
    EXPECT_GT(run.microseconds, 0.0);
    expect_clock(run.megahertz);
  }
  for (const char* name : {"y", "w1_q", "w2_scale_inv", "status"})
    EXPECT_EQ(read(*session_, name).bytes, read(*once, name).bytes) << name;
}

TEST_F(BenchTest, HotGemmsHaveTheClockThatTheyCounted) {
  const auto runs = measure_hot(*session_, *probe_, 0.002);
  ASSERT_TRUE(succeeded(runs));
  int32_t gemms = 0;
  for (size_t i = 0; i < runs->size(); ++i) {
    const compiler::KernelPlan& kernel = session_->plan().kernels[i];
    EXPECT_EQ(trial::tells_clock(kernel), kernel.operation.starts_with("gemm_"))
        << kernel.operation;
    if (!trial::tells_clock(kernel)) continue;
    ++gemms;
    const runtime::HostTensor elapsed = read(*session_, kernel.operation + "_elapsed");
    const auto values = runtime::elements<int64_t>(elapsed);
    ASSERT_EQ(values.size(), 2u);
    EXPECT_GT(values[0], 0);
    const double nanoseconds = static_cast<double>(values[1]);
    EXPECT_DOUBLE_EQ((*runs)[i].megahertz, 1000.0 * static_cast<double>(values[0]) / nanoseconds);
    EXPECT_LE(1e-3 * nanoseconds, 1e6 * (*runs)[i].seconds);
  }
  EXPECT_EQ(gemms, 2);
}

TEST_F(BenchTest, ForwardPassesAreTimedAsAWhole) {
  ASSERT_TRUE(succeeded(session_->call("update_weights")));
  const auto run = measure_forward(*session_, *probe_, 0.002);
  ASSERT_TRUE(succeeded(run));
  EXPECT_GT(run->microseconds, 0.0);
  expect_clock(run->megahertz);
}

TEST_F(BenchTest, StepsAreForwardAndBackwardPasses) {
  const compiler::Layer trained = layer({compiler::Pass::kForward, compiler::Pass::kBackward});
  const std::unique_ptr<Trial> session = create_session(trained);
  ASSERT_TRUE(succeeded(session->call("update_weights")));
  ASSERT_TRUE(succeeded(session->call("forward")));
  ASSERT_TRUE(succeeded(session->call("backward")));
  const std::vector<std::byte> dx = read(*session, "dx").bytes;
  const std::vector<std::byte> dw1 = read(*session, "dw1").bytes;

  const auto run = measure_step(*session, *probe_, 0.002);
  ASSERT_TRUE(succeeded(run));
  EXPECT_GT(run->microseconds, 0.0);
  expect_clock(run->megahertz);
  EXPECT_EQ(read(*session, "dx").bytes, dx);
  EXPECT_TRUE(read(*session, "dw1").bytes != dw1) << "nothing was added";
}

TEST_F(BenchTest, CoolRunsHaveTimeAndClockOfEveryKernel) {
  // In the simulator emptying the caches takes half a second for each kernel.
  if (test_device().is_simulator()) GTEST_SKIP() << "the simulator has no caches";
  const auto runs = measure_cool(*session_, *test_device().engine, *probe_, 3);
  ASSERT_TRUE(succeeded(runs));
  ASSERT_EQ(runs->size(), session_->plan().kernels.size());
  for (const measure::CoolRun& run : *runs) {
    EXPECT_GT(run.microseconds, 0.0);
    expect_clock(run.megahertz);
  }
}

TEST_F(BenchTest, TheDeviceSaysWhereItIs) {
  const runtime::GpuFacts facts = test_device().device->gpu_facts();
  EXPECT_EQ(facts.pci_bus_id.empty(), test_device().is_simulator());
  EXPECT_EQ(facts.cuda_version.empty(), test_device().is_simulator());
  if (test_device().is_simulator()) return;
  const auto monitor = measure::GpuMonitor::open(facts.pci_bus_id);
  if (monitor == nullptr) GTEST_SKIP() << "the driver's libnvidia-ml.so.1 does not know this GPU";
  EXPECT_GT(monitor->settings().power_limit_watts, 100.0);
  monitor->start();
  const measure::GpuSamples samples = monitor->stop();
  EXPECT_GT(samples.mean_watts, 20.0);
  EXPECT_GT(samples.mean_megahertz, 200.0);
}

}  // namespace
}  // namespace moejit::testing
