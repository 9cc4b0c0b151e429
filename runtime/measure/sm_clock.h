// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_source.h"
#include "compiler/plan.h"
#include "runtime/device_memory.h"
#include "runtime/engine.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace moejit::measure {

// How far an SM's clock and the GPU's timer went over the same time. Kernels write this record.
struct ClockSample {
  uint64_t cycles = 0;
  uint64_t nanoseconds = 0;
  double megahertz() const {
    return 1000.0 * static_cast<double>(cycles) / static_cast<double>(nanoseconds);
  }
};
static_assert(sizeof(ClockSample) == 2 * sizeof(uint64_t));

// Returns the probe's kernel.
compiler::KernelSource clock_probe_source(const compiler::Target& target);

// Measures the frequency of the SMs. A kernel of one thread spins for about 10 us between two ticks
// of the GPU's timer and counts the SM's cycles meanwhile. It runs after the kernel before it on
// the stream; frequencies change over milliseconds, so it measures that kernel's frequency.
class ClockProbe {
 public:
  // The most probes that may be queued before their samples are taken.
  static constexpr int32_t kMostSamples = 4096;

  static Result<ClockProbe> create(runtime::Engine& engine, runtime::Device& device);

  // Queues one probe on the default stream. Error kInternal: more than kMostSamples are queued.
  Result<void> run();

  // Returns the samples of all probes since the last call, in order; waits for them.
  Result<std::vector<ClockSample>> take_samples();

 private:
  runtime::Device* device_ = nullptr;
  std::unique_ptr<runtime::LoadedKernel> kernel_;
  runtime::DeviceMemory samples_;
  int32_t count_ = 0;
};

// Returns the multiply-adds that the matrix units of one SM of an H100 or H200 finish in a cycle.
// In the format that the kernel multiplies these are 4096 for e4m3, 2048 for bf16. (NVIDIA H100
// Tensor Core GPU Architecture: 1978.9 and 989.4 dense TFLOP/s from 132 SMs at 1830 MHz.)
int64_t peak_multiply_adds(const compiler::KernelPlan& kernel);

// The time that a kernel took, and the frequency of the SMs during it.
struct Cycles {
  double microseconds = 0.0;
  double megahertz = 0.0;
};
// Returns multiply_adds / (SMs x peak x cycles), which is 1 if every matrix unit works in every
// cycle that the kernel took.
double utilization(int64_t multiply_adds, int32_t sm_count, int64_t peak, const Cycles& taken);

}  // namespace moejit::measure
