// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/measure/cache_sweep.h"
#include "runtime/measure/clock_probe.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace moejit::measure {

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
  // Returns the medians, or zeros without launches. Of an even number of launches the median is the
  // larger of the two middle values.
  CoolRun medians() const;

 private:
  std::vector<double> microseconds_, megahertz_;
};

// Times `repeat` launches after a warm-up. `launch` queues the same work on the default stream each
// time. `clock` waits for it and returns what it counted.
Result<CoolRun> run_cool(const std::function<Result<void>()>& launch,
                         const std::function<Result<ClockSample>()>& clock, CacheSweep& sweep,
                         runtime::Device& device, int32_t repeat);

// Returns bytes read plus bytes written per second by the device's own copy of a buffer far larger
// than any cache. It is the median of `repeat` copies.
Result<double> measure_copy_bytes_per_second(runtime::Device& device, int32_t repeat);

}  // namespace moejit::measure
