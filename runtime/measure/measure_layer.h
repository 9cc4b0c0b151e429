// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/measure/timed_launches.h"
#include "runtime/prepared_plan.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace moejit::measure {

// A prepared layer or operation and the arguments of its calls, all of which must live longer.
struct LayerCall {
  runtime::PreparedPlan& prepared;
  runtime::Device& device;  // the device that it was prepared for
  runtime::CallMemory memory;
  std::span<const std::vector<runtime::TensorRef>> tensors;  // by index into Plan::calls

  // Launches a kernel of the plan alone, as PreparedPlan::launch() does.
  Result<void> launch(std::size_t kernel) const;
};

// Returns whether the kernel itself counts the clock that it ran at (PlanOptions::measure_gemms).
// Probes measure the clocks of other kernels. A probe is of no use after a GEMM. If the power limit
// holds the clock down, the clock rises as soon as the GEMM ends.
bool tells_clock(const compiler::KernelPlan& kernel);

struct KernelTimes {
  std::vector<CoolRun> cool;  // by index into Plan::kernels
  std::vector<HotRun> hot;    // by index into Plan::kernels
};

// Measures all kernels of the plan, `repeat` launches each, after a warm-up.
Result<std::vector<CoolRun>> measure_cool(const LayerCall& call, runtime::Engine& engine,
                                          ClockProbe& probe, int32_t repeat);

// Measures one kernel of the plan after the other, each for `seconds`. For a kernel that counts its
// clock, the clock is the one of its last launch. Leaves the tensors as the kernels' calls do.
Result<std::vector<HotRun>> measure_hot(const LayerCall& call, ClockProbe& probe, double seconds,
                                        GpuMonitor* monitor = nullptr);

// Measures whole forward passes back to back for `seconds`.
Result<HotRun> measure_forward(const LayerCall& call, ClockProbe& probe, double seconds,
                               GpuMonitor* monitor = nullptr);

// Queues one step: a forward pass and, if the layer has one, a backward pass. If gradients may be
// added to, backward adds to dw1 and dw2. If the recipe has a history, each pass is followed by the
// update of its scales.
Result<void> run_step(const LayerCall& call);

// Measures forward and backward passes in turn for `seconds`. If gradients may be added to, each
// backward pass adds to dw1 and dw2, which hold what an earlier pass has written.
Result<HotRun> measure_step(const LayerCall& call, ClockProbe& probe, double seconds,
                            GpuMonitor* monitor = nullptr);

}  // namespace moejit::measure
