// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device.h"
#include "runtime/device_memory.h"
#include "runtime/engine.h"
#include "runtime/measure/gpu_monitor.h"
#include "runtime/measure/sm_clock.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace moejit::measure {

// Empties a device's caches by reading a buffer far larger than they are. Unlike a fill, this
// leaves almost no dirty lines, whose write-back would count as traffic of the kernel timed next.
//
// The reader is one of our own kernels: the dots of rows and a bias. Its results depend on every
// byte, so that none can be skipped.
class CacheSweep {
 public:
  // Is far larger than the L2 cache of the target's GPUs, which has 50 to 60 MiB.
  static constexpr int64_t kBytes = int64_t{256} << 20;

  // Reads `bytes`, rounded up to whole rows of 16 KiB, in each sweep. Sweeps once, and checks by
  // the results that all was read: error kInternal if not.
  static Result<CacheSweep> create(runtime::Engine& engine, runtime::Device& device,
                                   int64_t bytes = kBytes);

  // Queues one sweep on the default stream.
  Result<void> run();

  int64_t bytes() const;  // that a sweep reads

 private:
  Result<void> check_sums();

  runtime::Device* device_ = nullptr;
  int64_t rows_ = 0;
  std::unique_ptr<runtime::LoadedKernel> kernel_;
  runtime::DeviceMemory values_, bias_, groups_, sums_;
};

// Number of launches before the measured ones.
inline constexpr int32_t kWarmUps = 3;

// Medians over single launches, each after the caches were emptied.
struct CoolRun {
  double microseconds = 0.0;
  double megahertz = 0.0;  // of the SMs: during the launch or right behind it
};

// Collects single launches of one kernel.
class CoolLaunches {
 public:
  void add(double microseconds, const ClockSample& clock) {
    microseconds_.push_back(microseconds);
    megahertz_.push_back(clock.megahertz());
  }
  // Returns the medians, or zeros without launches. The median of an even number of launches is the
  // larger of the two middle values.
  CoolRun medians() const;

 private:
  std::vector<double> microseconds_, megahertz_;
};

// Returns bytes read plus bytes written per second by the device's own copy of a buffer far larger
// than any cache. It is the median of `repeat` copies.
Result<double> measure_copy_bytes_per_second(runtime::Device& device, int32_t repeat);

// Returns bytes read per second by a kernel of ours that writes next to nothing, from a buffer as
// large as a copy's. It is no ceiling: other kernels may read faster. It is the median of `repeat`
// launches.
Result<double> measure_read_bytes_per_second(runtime::Engine& engine, runtime::Device& device,
                                             int32_t repeat);

// Many launches back to back. Nothing runs between them, except a clock probe every few
// milliseconds if there is one.
struct HotRun {
  double microseconds = 0.0;  // of one launch
  double megahertz = 0.0;     // of the SMs: mean of the probes, 0 without any
  int64_t launches = 0;
  double seconds = 0.0;  // of all launches, without the probes
  GpuSamples gpu;        // samples of the monitor meanwhile
};

// Calls `launch`, which queues the same work on the default stream each time, until launches have
// run for `seconds` (more than 0). The warm-up before is half as long: enough for power and clock
// to settle. Time is marked before the first launch and behind the last. Kernels shorter than the
// few microseconds that a launch costs the host are timed at the host's pace. Probe and monitor may
// be null; the monitor watches the launches that are timed.
Result<HotRun> run_hot(const std::function<Result<void>()>& launch, runtime::Device& device,
                       ClockProbe* probe, double seconds, GpuMonitor* monitor = nullptr);

}  // namespace moejit::measure
