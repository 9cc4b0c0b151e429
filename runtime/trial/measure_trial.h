// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/measure/timed_launches.h"
#include "runtime/trial/trial.h"

#include <cstdint>
#include <vector>

// Times the kernels of a layer or an operation on one device, with the tensors of a trial.
namespace moejit::trial {

// Returns whether the kernel itself counts the clock that it ran at (PlanOptions::measure_gemms).
// Probes measure the clocks of other kernels. A probe is of no use after a GEMM. If the power limit
// holds the clock down, the clock rises as soon as the GEMM ends.
bool tells_clock(const compiler::KernelPlan& kernel);

struct KernelTimes {
  std::vector<measure::CoolRun> cool;  // by index into Plan::kernels
  std::vector<measure::HotRun> hot;    // by index into Plan::kernels
};

// Measures all kernels of the plan, `repeat` launches each, after a warm-up.
Result<std::vector<measure::CoolRun>> measure_cool(Trial& trial, runtime::Engine& engine,
                                                   measure::ClockProbe& probe, int32_t repeat);

// Measures one kernel of the plan after the other, each for `seconds`. For a kernel that counts its
// clock, the clock is the one of its last launch. Leaves the tensors as the kernels' calls do.
Result<std::vector<measure::HotRun>> measure_hot(Trial& trial, measure::ClockProbe& probe,
                                                 double seconds,
                                                 measure::GpuMonitor* monitor = nullptr);

// Measures whole forward passes back to back for `seconds`.
Result<measure::HotRun> measure_forward(Trial& trial, measure::ClockProbe& probe, double seconds,
                                        measure::GpuMonitor* monitor = nullptr);

// Measures forward passes back to back in CUDA graphs, for `seconds`. They run at the pace of the
// GPU, also where a pass is shorter than its launches take the host.
Result<measure::HotRun> measure_forward_graph(Trial& trial, measure::ClockProbe& probe,
                                              double seconds,
                                              measure::GpuMonitor* monitor = nullptr);

// Measures forward and backward passes in turn for `seconds`. If gradients may be added to, each
// backward pass adds to dw1 and dw2, which hold what an earlier pass has written.
Result<measure::HotRun> measure_step(Trial& trial, measure::ClockProbe& probe, double seconds,
                                     measure::GpuMonitor* monitor = nullptr);

}  // namespace moejit::trial
