// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/measure_gemm.h"

#include "cli/bench/median.h"
#include "cli/execution/time_mark.h"

#include <vector>

namespace moejit::cli {

Result<CoolRun> measure_cool(GemmSession& session, CacheSweep& sweep, runtime::Device& device,
                             int32_t repeat) {
  constexpr int32_t kWarmUps = 3;
  std::vector<double> microseconds, megahertz;
  for (int32_t i = 0; i < kWarmUps + repeat; ++i) {
    TimeMark start(device), end(device);
    // The sweep keeps the device busy until the host has queued the rest.
    MOEJIT_TRY(sweep.run());
    MOEJIT_TRY(start.record());
    MOEJIT_TRY(session.launch());
    MOEJIT_TRY(end.record());
    MOEJIT_TRY_ASSIGN(const double elapsed, end.since(start));
    MOEJIT_TRY_ASSIGN(const ClockSample clock, session.elapsed());
    if (i < kWarmUps) continue;
    microseconds.push_back(elapsed);
    megahertz.push_back(clock.megahertz());
  }
  return CoolRun{median(std::move(microseconds)), median(std::move(megahertz))};
}

Result<HotRun> measure_hot(GemmSession& session, runtime::Device& device, double seconds,
                           GpuMonitor* monitor) {
  MOEJIT_TRY_ASSIGN(HotRun run,
                    run_hot([&] { return session.launch(); }, device, nullptr, seconds, monitor));
  MOEJIT_TRY_ASSIGN(const ClockSample clock, session.elapsed());
  run.megahertz = clock.megahertz();
  return run;
}

}  // namespace moejit::cli
