// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/measure/cool_run.h"
#include "runtime/measure/hot_run.h"
#include "runtime/prepared_layer.h"

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace moejit::measure {

// A prepared layer and what its calls take, all of which must live longer.
struct LayerCall {
  runtime::PreparedLayer& layer;
  runtime::Device& device;  // that it was prepared for
  runtime::CallMemory memory;
  // What the calls of each compiler::Phase take.
  std::array<std::span<const runtime::TensorRef>, 3> tensors;
};

// Tells whether the kernel itself counts the clock that it ran at (PlanOptions::measure_gemms).
// Probes tell the others'. They are no use behind a GEMM: where the power limit holds the clock
// down, it rises as soon as the GEMM ends.
bool tells_clock(const compiler::KernelPlan& kernel);

struct KernelTimes {
  std::vector<CoolRun> cool;  // by index into Plan::kernels
  std::vector<HotRun> hot;    // likewise
};

// Measures all kernels of the plan, `repeat` launches each, after a warm-up.
Result<std::vector<CoolRun>> measure_cool(const LayerCall& call, runtime::Engine& engine,
                                          ClockProbe& probe, int32_t repeat);

// Measures one kernel of the plan after the other, each for `seconds`; the clock of those that tell
// it is that of the last launch. Leaves the tensors as the calls that the kernels belong to do.
Result<std::vector<HotRun>> measure_hot(const LayerCall& call, ClockProbe& probe, double seconds,
                                        GpuMonitor* monitor = nullptr);

// Measures whole forward passes back to back for `seconds`.
Result<HotRun> measure_forward(const LayerCall& call, ClockProbe& probe, double seconds,
                               GpuMonitor* monitor = nullptr);

// Measures forward and backward passes in turn for `seconds`. Where gradients may be added to, each
// adds to dw1 and dw2, which hold what an earlier pass has written.
Result<HotRun> measure_step(const LayerCall& call, ClockProbe& probe, double seconds,
                            GpuMonitor* monitor = nullptr);

}  // namespace moejit::measure
