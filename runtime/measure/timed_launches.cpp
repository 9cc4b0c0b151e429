// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/timed_launches.h"

#include "runtime/measure/kernel_timer.h"
#include "templates/moejit_device/params/bias_gradient_params.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <fmt/core.h>
#include <span>
#include <vector>

namespace moejit::measure {
namespace {

using runtime::DeviceMemory;

constexpr int64_t kColumns = 8192;
constexpr int64_t kRowBytes = 2 * kColumns;
constexpr int32_t kThreads = 256;
constexpr int32_t kRowsOfCta = kThreads / 32;  // each warp has one row at a time

// Both bytes of the bf16 number 3. Values and bias hold only this number, so sums are exact.
constexpr std::byte kThree{0x40};
constexpr float kSum = 9.0F * static_cast<float>(kColumns);

compiler::KernelPlan reader() {
  return {.operation = "cache_sweep",
          .spec = compiler::RowDotsSpec{.input = compiler::DType::kBF16,
                                        .local_experts = 1,
                                        .columns = kColumns,
                                        .threads = kThreads}};
}

Result<DeviceMemory> filled(runtime::Device& device, int64_t bytes, std::byte value) {
  MOEJIT_TRY_ASSIGN(DeviceMemory memory, DeviceMemory::allocate(device, bytes));
  MOEJIT_TRY(device.fill(memory.address(), value, bytes, nullptr));
  return memory;
}

}  // namespace

Result<CacheSweep> CacheSweep::create(runtime::Engine& engine, runtime::Device& device,
                                      int64_t bytes) {
  CacheSweep sweep;
  sweep.device_ = &device;
  sweep.rows_ = (bytes + kRowBytes - 1) / kRowBytes;
  MOEJIT_TRY_ASSIGN(const compiler::KernelSource source, emit_kernel(reader(), device.target()));
  MOEJIT_TRY_ASSIGN(const auto binary, engine.binary(source));
  MOEJIT_TRY_ASSIGN(sweep.kernel_, device.load(*binary));
  MOEJIT_TRY_ASSIGN(sweep.values_, filled(device, sweep.rows_ * kRowBytes, kThree));
  MOEJIT_TRY_ASSIGN(sweep.bias_, filled(device, kRowBytes, kThree));
  MOEJIT_TRY_ASSIGN(sweep.sums_, filled(device, 4 * sweep.rows_, std::byte{0}));
  // Holds counts [1] and offs [2] of one group, each in 16 bytes of its own.
  const auto rows = static_cast<int32_t>(sweep.rows_);
  const std::array<int32_t, 8> groups = {rows, 0, 0, 0, 0, rows, 0, 0};
  MOEJIT_TRY_ASSIGN(sweep.groups_, DeviceMemory::allocate(device, sizeof(groups)));
  MOEJIT_TRY(device.copy_to_device(sweep.groups_.address(), groups.data(), sizeof(groups)));
  MOEJIT_TRY(sweep.run());
  MOEJIT_TRY(sweep.check_sums());
  return sweep;
}

Result<void> CacheSweep::run() {
  const auto* groups = static_cast<const int32_t*>(groups_.address());
  const device::BiasGradientParams params{.input = values_.address(),
                                          .bias = static_cast<const device::Bf16*>(bias_.address()),
                                          .counts = groups,
                                          .offs = groups + 4,
                                          .output = static_cast<float*>(sums_.address()),
                                          .rows = rows_};
  const runtime::MemoryRegion regions[] = {{"values", values_.address(), rows_ * kRowBytes},
                                           {"bias", bias_.address(), kRowBytes},
                                           {"groups", groups_.address(), 32},
                                           {"sums", sums_.address(), 4 * rows_, true}};
  return device_->launch({.kernel = kernel_.get(),
                          .ctas = (rows_ + kRowsOfCta - 1) / kRowsOfCta,
                          .threads = kThreads,
                          .params = std::as_bytes(std::span(&params, 1)),
                          .regions = regions},
                         nullptr);
}

int64_t CacheSweep::bytes() const { return rows_ * kRowBytes; }

Result<void> CacheSweep::check_sums() {
  std::vector<float> sums(static_cast<size_t>(rows_));
  MOEJIT_TRY(device_->copy_to_host(sums.data(), sums_.address(), 4 * rows_));
  const auto wrong = std::ranges::find_if(sums, [](float sum) { return sum != kSum; });
  if (wrong == sums.end()) return {};
  return fail(Stage::kLaunch, ErrorCode::kInternal,
              fmt::format("the sweep that empties caches did not read row {} of {}: its sum is {}, "
                          "wanted {}",
                          wrong - sums.begin(), rows_, *wrong, kSum));
}

namespace {

constexpr int64_t kCopyBytes = int64_t{512} << 20;

double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// Returns the median time of `repeat` single launches, in microseconds.
template <typename Queue>
Result<double> median_time(runtime::Device& device, int32_t repeat, const Queue& queue) {
  std::vector<double> times;
  for (int32_t i = 0; i < kWarmUps + repeat; ++i) {
    TimeMark start(device), end(device);
    MOEJIT_TRY(start.record());
    MOEJIT_TRY(queue());
    MOEJIT_TRY(end.record());
    MOEJIT_TRY_ASSIGN(const double elapsed, end.since(start));
    if (i >= kWarmUps) times.push_back(elapsed);
  }
  return median(std::move(times));
}

}  // namespace

CoolRun CoolLaunches::medians() const { return {median(microseconds_), median(megahertz_)}; }

Result<double> measure_copy_bytes_per_second(runtime::Device& device, int32_t repeat) {
  using runtime::DeviceMemory;
  MOEJIT_TRY_ASSIGN(const DeviceMemory source, DeviceMemory::allocate(device, kCopyBytes));
  MOEJIT_TRY_ASSIGN(const DeviceMemory destination, DeviceMemory::allocate(device, kCopyBytes));
  MOEJIT_TRY(device.fill(source.address(), std::byte{0x5A}, kCopyBytes, nullptr));
  MOEJIT_TRY_ASSIGN(const double microseconds, median_time(device, repeat, [&] {
                      return device.copy_on_device(destination.address(), source.address(),
                                                   kCopyBytes, nullptr);
                    }));
  return 2.0 * static_cast<double>(kCopyBytes) / (microseconds * 1e-6);
}

Result<double> measure_read_bytes_per_second(runtime::Engine& engine, runtime::Device& device,
                                             int32_t repeat) {
  MOEJIT_TRY_ASSIGN(CacheSweep sweep, CacheSweep::create(engine, device, kCopyBytes));
  MOEJIT_TRY_ASSIGN(const double microseconds,
                    median_time(device, repeat, [&] { return sweep.run(); }));
  return static_cast<double>(sweep.bytes()) / (microseconds * 1e-6);
}

namespace {

using Launch = std::function<Result<void>()>;

// A probe costs about 12 us, 0.3 % of the time between two probes. The probes' own time is
// subtracted from the run's, so only the two gaps around each probe remain.
constexpr double kMicrosecondsPerProbe = 4000.0;
constexpr int64_t kMostProbes = ClockProbe::kMostSamples / 2;

int64_t launches_in(double microseconds, double per_launch) {
  return std::max<int64_t>(1, std::llround(std::ceil(microseconds / std::max(per_launch, 0.01))));
}

// Returns the microseconds of `count` launches, with a probe after each `interval` launches and
// after the last one. Runs without probes if `probe` is null.
Result<double> time_launches(const Launch& launch, int64_t count, runtime::Device& device,
                             ClockProbe* probe = nullptr, int64_t interval = 1) {
  TimeMark start(device), end(device);
  MOEJIT_TRY(start.record());
  for (int64_t i = 1; i <= count; ++i) {
    MOEJIT_TRY(launch());
    if (probe != nullptr && (i % interval == 0 || i == count)) MOEJIT_TRY(probe->run());
  }
  MOEJIT_TRY(end.record());
  return end.since(start);
}

// Launches for at least `microseconds`; returns the microseconds of one launch.
Result<double> warm_up(const Launch& launch, runtime::Device& device, double microseconds) {
  double total = 0.0;
  int64_t launches = 0, next = 1;
  while (total < microseconds) {
    MOEJIT_TRY_ASSIGN(const double elapsed, time_launches(launch, next, device));
    total += elapsed;
    launches += next;
    next = launches_in(microseconds - total, total / static_cast<double>(launches));
  }
  return total / static_cast<double>(launches);
}

Result<HotRun> time_hot(const Launch& launch, int64_t count, runtime::Device& device,
                        ClockProbe* probe, int64_t interval, GpuMonitor* monitor) {
  if (monitor != nullptr) monitor->start();
  const Result<double> timed = time_launches(launch, count, device, probe, interval);
  GpuSamples gpu = monitor == nullptr ? GpuSamples{} : monitor->stop();
  MOEJIT_TRY_ASSIGN(const double elapsed, timed);
  std::vector<ClockSample> samples;
  if (probe != nullptr) {
    MOEJIT_TRY_ASSIGN(samples, probe->take_samples());
  }
  double probing = 0.0, megahertz = 0.0;
  for (const ClockSample& sample : samples) {
    probing += 1e-3 * static_cast<double>(sample.nanoseconds);
    megahertz += sample.megahertz();
  }
  const double net = std::max(elapsed - probing, 0.0);
  return HotRun{.microseconds = net / static_cast<double>(count),
                .megahertz = megahertz / static_cast<double>(std::max<size_t>(1, samples.size())),
                .launches = count,
                .seconds = 1e-6 * net,
                .gpu = std::move(gpu)};
}

}  // namespace

Result<HotRun> run_hot(const Launch& launch, runtime::Device& device, ClockProbe* probe,
                       double seconds, GpuMonitor* monitor) {
  const double wanted = 1e6 * seconds;
  MOEJIT_TRY_ASSIGN(double per_launch, warm_up(launch, device, wanted / 2));
  // A first guess that is too short is followed by longer ones; the device stays hot.
  for (double aim = 1.05 * wanted;; aim *= 1.5) {
    const int64_t count = launches_in(aim, per_launch);
    const int64_t interval =
        std::max(launches_in(kMicrosecondsPerProbe, per_launch), count / kMostProbes + 1);
    MOEJIT_TRY_ASSIGN(HotRun run, time_hot(launch, count, device, probe, interval, monitor));
    if (run.seconds >= seconds) return run;
    per_launch = run.microseconds;
  }
}

}  // namespace moejit::measure
