// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/hot_run.h"

#include "runtime/measure/kernel_timer.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace moejit::measure {
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
