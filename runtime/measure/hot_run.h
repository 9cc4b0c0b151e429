// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device.h"
#include "runtime/measure/clock_probe.h"
#include "runtime/measure/gpu_monitor.h"

#include <cstdint>
#include <functional>

namespace moejit::measure {

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
