// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/measure.h"

#include "cli/bench/cache_sweep.h"
#include "cli/execution/kernel_timer.h"
#include "cli/execution/time_mark.h"

#include <algorithm>

namespace moejit::cli {
namespace {

constexpr int64_t kCopyBytes = int64_t{512} << 20;
constexpr int32_t kWarmUps = 3;

double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// Empties the caches before each kernel and asks for the clock behind it. The sweep also keeps the
// device busy until the host has queued mark, kernel and mark, so that no launch latency is
// measured.
class CoolTimer final : public runtime::LaunchObserver {
 public:
  CoolTimer(runtime::Device& device, CacheSweep& sweep, ClockProbe& probe)
      : sweep_(sweep), probe_(probe), timer_(device) {}

  Result<void> before(size_t kernel_index) override {
    MOEJIT_TRY(sweep_.run());
    return timer_.before(kernel_index);
  }
  Result<void> after(size_t kernel_index) override {
    MOEJIT_TRY(timer_.after(kernel_index));
    return probe_.run();
  }

  // Adds the launches of one pass.
  Result<void> add_pass() {
    MOEJIT_TRY_ASSIGN(const auto times, timer_.take_samples());
    MOEJIT_TRY_ASSIGN(const auto clocks, probe_.take_samples());
    for (size_t i = 0; i < times.size(); ++i) {
      const size_t kernel = times[i].kernel_index;
      if (kernel >= launches_.size()) launches_.resize(kernel + 1);
      launches_[kernel].microseconds.push_back(times[i].microseconds);
      launches_[kernel].megahertz.push_back(clocks[i].megahertz());
    }
    return {};
  }
  std::vector<CoolRun> medians(size_t kernels) const {
    std::vector<CoolRun> runs(kernels);
    for (size_t i = 0; i < std::min(kernels, launches_.size()); ++i)
      runs[i] = {median(launches_[i].microseconds), median(launches_[i].megahertz)};
    return runs;
  }

 private:
  struct Launches {
    std::vector<double> microseconds, megahertz;
  };
  CacheSweep& sweep_;
  ClockProbe& probe_;
  KernelTimer timer_;
  std::vector<Launches> launches_;
};

Result<void> run_pass(ForwardSession& session, runtime::LaunchObserver* observer = nullptr) {
  MOEJIT_TRY(session.update_weights(observer));
  return session.forward(observer);
}

}  // namespace

Result<std::vector<CoolRun>> measure_cool(ForwardSession& session, runtime::Engine& engine,
                                          runtime::Device& device, ClockProbe& probe,
                                          int32_t repeat) {
  MOEJIT_TRY_ASSIGN(CacheSweep sweep, CacheSweep::create(engine, device));
  for (int32_t i = 0; i < kWarmUps; ++i) MOEJIT_TRY(run_pass(session));
  CoolTimer timer(device, sweep, probe);
  for (int32_t i = 0; i < repeat; ++i) {
    MOEJIT_TRY(run_pass(session, &timer));
    MOEJIT_TRY(timer.add_pass());
  }
  return timer.medians(session.plan().kernels.size());
}

Result<std::vector<HotRun>> measure_hot(ForwardSession& session, runtime::Device& device,
                                        ClockProbe& probe, double seconds, GpuMonitor* monitor) {
  MOEJIT_TRY(session.clear_status());
  std::vector<HotRun> runs;
  // In the order of the plan, so that each kernel finds what the one before it left.
  for (size_t i = 0; i < session.plan().kernels.size(); ++i) {
    MOEJIT_TRY_ASSIGN(HotRun run, run_hot([&] { return session.launch_kernel(i); }, device, probe,
                                          seconds, monitor));
    runs.push_back(std::move(run));
  }
  return runs;
}

Result<HotRun> measure_forward(ForwardSession& session, runtime::Device& device, ClockProbe& probe,
                               double seconds, GpuMonitor* monitor) {
  return run_hot([&] { return session.forward(); }, device, probe, seconds, monitor);
}

Result<double> measure_copy_bytes_per_second(runtime::Device& device, int32_t repeat) {
  MOEJIT_TRY_ASSIGN(const DeviceMemory source, DeviceMemory::allocate(device, kCopyBytes));
  MOEJIT_TRY_ASSIGN(const DeviceMemory destination, DeviceMemory::allocate(device, kCopyBytes));
  MOEJIT_TRY(device.fill(source.address(), std::byte{0x5A}, kCopyBytes, nullptr));
  std::vector<double> times;
  for (int32_t i = 0; i < kWarmUps + repeat; ++i) {
    TimeMark start(device), end(device);
    MOEJIT_TRY(start.record());
    MOEJIT_TRY(device.copy_on_device(destination.address(), source.address(), kCopyBytes, nullptr));
    MOEJIT_TRY(end.record());
    MOEJIT_TRY_ASSIGN(const double elapsed, end.since(start));
    if (i >= kWarmUps) times.push_back(elapsed);
  }
  return 2.0 * static_cast<double>(kCopyBytes) / (median(std::move(times)) * 1e-6);
}

}  // namespace moejit::cli
