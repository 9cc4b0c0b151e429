// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/sm_clock.h"

#include "runtime/measure/operation_run.h"
#include "templates/moejit_device/params/measure_params.h"

#include <algorithm>
#include <fmt/core.h>
#include <span>

namespace moejit::measure {
namespace {

constexpr int64_t kSampleBytes = sizeof(ClockSample);

}  // namespace

compiler::KernelSource clock_probe_source(const compiler::Target& target) {
  return measuring_kernel("clock_probe", target);
}

Result<ClockProbe> ClockProbe::create(runtime::Engine& engine, runtime::Device& device) {
  ClockProbe probe;
  probe.device_ = &device;
  MOEJIT_TRY_ASSIGN(const auto binary, engine.binary(clock_probe_source(device.target())));
  MOEJIT_TRY_ASSIGN(probe.kernel_, device.load(*binary));
  MOEJIT_TRY_ASSIGN(probe.samples_,
                    runtime::DeviceMemory::allocate(device, kMostSamples * kSampleBytes));
  return probe;
}

Result<void> ClockProbe::run() {
  if (count_ == kMostSamples)
    return fail(Stage::kLaunch, ErrorCode::kInternal,
                fmt::format("more than {} clock probes before their samples were taken", count_));
  auto* const sample = static_cast<ClockSample*>(samples_.address()) + count_;
  const device::ClockProbeParams params{&sample->cycles};
  const runtime::MemoryRegion region{"sample", sample, kSampleBytes, true};
  ++count_;
  return device_->launch({.kernel = kernel_.get(),
                          .ctas = 1,
                          .threads = 1,
                          .params = std::as_bytes(std::span(&params, 1)),
                          .regions = std::span(&region, 1)},
                         nullptr);
}

Result<std::vector<ClockSample>> ClockProbe::take_samples() {
  MOEJIT_TRY(device_->synchronize(nullptr));
  std::vector<ClockSample> samples(static_cast<size_t>(count_));
  MOEJIT_TRY(device_->copy_to_host(samples.data(), samples_.address(), count_ * kSampleBytes));
  count_ = 0;
  return samples;
}

int64_t peak_multiply_adds(const compiler::KernelPlan& kernel) {
  // Only e4m3 operands come with scales.
  const bool is_e4m3 = std::ranges::find(kernel.arguments, "a_scale_inv",
                                         &compiler::KernelArgument::role) != kernel.arguments.end();
  return is_e4m3 ? 4096 : 2048;
}

double utilization(int64_t multiply_adds, int32_t sm_count, int64_t peak, const Cycles& taken) {
  const double cycles = taken.microseconds * taken.megahertz;
  return static_cast<double>(multiply_adds) /
         (static_cast<double>(sm_count) * static_cast<double>(peak) * cycles);
}

}  // namespace moejit::measure
