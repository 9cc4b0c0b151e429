// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/bench/cache_sweep.h"
#include "cli/bench/gemm_session.h"
#include "cli/bench/measure.h"

#include <cstdint>

namespace moejit::cli {

// As the kernels of a layer are measured (cli/bench/measure.h); the clock of the hot run is that of
// its last launch.
Result<CoolRun> measure_cool(GemmSession& session, CacheSweep& sweep, runtime::Device& device,
                             int32_t repeat);
Result<HotRun> measure_hot(GemmSession& session, runtime::Device& device, double seconds,
                           GpuMonitor* monitor = nullptr);

}  // namespace moejit::cli
