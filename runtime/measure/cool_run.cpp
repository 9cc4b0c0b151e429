// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/cool_run.h"

#include "runtime/measure/kernel_timer.h"

#include <algorithm>
#include <cstddef>

namespace moejit::measure {
namespace {

constexpr int64_t kCopyBytes = int64_t{512} << 20;

double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

CoolRun CoolLaunches::medians() const { return {median(microseconds_), median(megahertz_)}; }

Result<CoolRun> run_cool(const std::function<Result<void>()>& launch,
                         const std::function<Result<ClockSample>()>& clock, CacheSweep& sweep,
                         runtime::Device& device, int32_t repeat) {
  CoolLaunches launches;
  for (int32_t i = 0; i < kWarmUps + repeat; ++i) {
    TimeMark start(device), end(device);
    // The sweep keeps the device busy until the host has queued the rest.
    MOEJIT_TRY(sweep.run());
    MOEJIT_TRY(start.record());
    MOEJIT_TRY(launch());
    MOEJIT_TRY(end.record());
    MOEJIT_TRY_ASSIGN(const double elapsed, end.since(start));
    MOEJIT_TRY_ASSIGN(const ClockSample counted, clock());
    if (i >= kWarmUps) launches.add(elapsed, counted);
  }
  return launches.medians();
}

Result<double> measure_copy_bytes_per_second(runtime::Device& device, int32_t repeat) {
  using runtime::DeviceMemory;
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

}  // namespace moejit::measure
