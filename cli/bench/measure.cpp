// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/measure.h"

#include "cli/bench/cache_sweep.h"
#include "cli/execution/kernel_timer.h"

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

// Empties the caches before each kernel. The sweep also keeps the device busy until the host has
// queued mark, kernel and mark, so that no launch latency is measured.
class SweepingTimer final : public runtime::LaunchObserver {
 public:
  SweepingTimer(runtime::Device& device, CacheSweep& sweep) : sweep_(sweep), timer_(device) {}

  Result<void> before(size_t kernel_index) override {
    MOEJIT_TRY(sweep_.run());
    return timer_.before(kernel_index);
  }
  Result<void> after(size_t kernel_index) override { return timer_.after(kernel_index); }
  Result<std::vector<KernelTimer::Sample>> take_samples() { return timer_.take_samples(); }

 private:
  CacheSweep& sweep_;
  KernelTimer timer_;
};

template <typename Timer>
Result<std::vector<double>> median_times(ForwardSession& session, Timer& timer, int32_t repeat) {
  std::vector<std::vector<double>> by_kernel(session.plan().kernels.size());
  for (int32_t i = 0; i < repeat; ++i) {
    MOEJIT_TRY(session.update_weights(&timer));
    MOEJIT_TRY(session.forward(&timer));
    MOEJIT_TRY_ASSIGN(const std::vector<KernelTimer::Sample> samples, timer.take_samples());
    for (const KernelTimer::Sample& sample : samples)
      by_kernel[sample.kernel_index].push_back(sample.microseconds);
  }
  std::vector<double> medians;
  for (std::vector<double>& times : by_kernel) medians.push_back(median(std::move(times)));
  return medians;
}

// A mark that is given back.
class Mark {
 public:
  explicit Mark(runtime::Device& device) : device_(device) {}
  ~Mark() {
    if (mark_ != nullptr) device_.release_mark(mark_);
  }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  Result<void> record() {
    MOEJIT_TRY_ASSIGN(mark_, device_.record_mark(nullptr));
    return {};
  }
  void* get() const { return mark_; }

 private:
  runtime::Device& device_;
  void* mark_ = nullptr;
};

Result<double> layer_time(ForwardSession& session, runtime::Device& device, int32_t repeat) {
  Mark start(device), end(device);
  MOEJIT_TRY(start.record());
  for (int32_t i = 0; i < repeat; ++i) MOEJIT_TRY(session.forward());
  MOEJIT_TRY(end.record());
  MOEJIT_TRY(device.synchronize(nullptr));
  MOEJIT_TRY_ASSIGN(const double elapsed, device.microseconds_between(start.get(), end.get()));
  return elapsed / repeat;
}

}  // namespace

Result<KernelTimes> measure_kernels(ForwardSession& session, runtime::Engine& engine,
                                    runtime::Device& device, int32_t repeat) {
  MOEJIT_TRY_ASSIGN(CacheSweep sweep, CacheSweep::create(engine, device));
  KernelTimer plain(device);
  SweepingTimer sweeping(device, sweep);
  MOEJIT_TRY(median_times(session, plain, kWarmUps));
  KernelTimes times;
  MOEJIT_TRY_ASSIGN(times.cool, median_times(session, sweeping, repeat));
  MOEJIT_TRY_ASSIGN(times.hot, median_times(session, plain, repeat));
  MOEJIT_TRY_ASSIGN(times.layer_hot, layer_time(session, device, repeat));
  return times;
}

Result<double> measure_copy_bytes_per_second(runtime::Device& device, int32_t repeat) {
  MOEJIT_TRY_ASSIGN(const DeviceMemory source, DeviceMemory::allocate(device, kCopyBytes));
  MOEJIT_TRY_ASSIGN(const DeviceMemory destination, DeviceMemory::allocate(device, kCopyBytes));
  MOEJIT_TRY(device.fill(source.address(), std::byte{0x5A}, kCopyBytes, nullptr));
  std::vector<double> times;
  for (int32_t i = 0; i < kWarmUps + repeat; ++i) {
    Mark start(device), end(device);
    MOEJIT_TRY(start.record());
    MOEJIT_TRY(device.copy_on_device(destination.address(), source.address(), kCopyBytes, nullptr));
    MOEJIT_TRY(end.record());
    MOEJIT_TRY(device.synchronize(nullptr));
    MOEJIT_TRY_ASSIGN(const double elapsed, device.microseconds_between(start.get(), end.get()));
    if (i >= kWarmUps) times.push_back(elapsed);
  }
  return 2.0 * static_cast<double>(kCopyBytes) / (median(std::move(times)) * 1e-6);
}

}  // namespace moejit::cli
