// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/bench/hot_run.h"
#include "cli/execution/layer_session.h"

#include <cstdint>
#include <vector>

namespace moejit::cli {

// Medians over single launches, each after the caches were emptied.
struct CoolRun {
  double microseconds = 0.0;
  double megahertz = 0.0;  // of the SMs: during the launch or right behind it
};

// Whether the kernel itself tells the clock that it ran at (PlanOptions::measure_gemms). Probes
// tell the others'. They are no use behind a GEMM: where the power limit holds the clock down, it
// rises as soon as the GEMM ends.
bool tells_clock(const compiler::KernelPlan& kernel);

struct KernelTimes {
  std::vector<CoolRun> cool;  // by index into Plan::kernels
  std::vector<HotRun> hot;    // likewise
};

// All kernels of the plan, `repeat` launches each, after a warm-up.
Result<std::vector<CoolRun>> measure_cool(LayerSession& session, runtime::Engine& engine,
                                          runtime::Device& device, ClockProbe& probe,
                                          int32_t repeat);

// One kernel of the plan after the other, each for `seconds`; the clock of those that tell it is
// that of the last launch. Leaves the tensors as the calls that the kernels belong to do.
Result<std::vector<HotRun>> measure_hot(LayerSession& session, runtime::Device& device,
                                        ClockProbe& probe, double seconds,
                                        GpuMonitor* monitor = nullptr);

// Whole forward passes back to back for `seconds`.
Result<HotRun> measure_forward(LayerSession& session, runtime::Device& device, ClockProbe& probe,
                               double seconds, GpuMonitor* monitor = nullptr);

// Forward and backward passes that add to dw1 and dw2, where they do, in turn, for `seconds`.
Result<HotRun> measure_step(LayerSession& session, runtime::Device& device, ClockProbe& probe,
                            double seconds, GpuMonitor* monitor = nullptr);

// Bytes read plus bytes written per second by the device's own copy of a buffer far larger than
// any cache; the median of `repeat` copies.
Result<double> measure_copy_bytes_per_second(runtime::Device& device, int32_t repeat);

}  // namespace moejit::cli
