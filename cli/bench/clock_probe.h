// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/bench/clock_sample.h"
#include "cli/execution/device_memory.h"
#include "compiler/kernel_source.h"
#include "runtime/engine.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace moejit::cli {

// The probe's kernel.
compiler::KernelSource clock_probe_source(const compiler::Target& target);

// Measures the frequency of the SMs: a kernel of one thread spins for about 10 us between two ticks
// of the GPU's timer and counts the SM's cycles meanwhile. It runs when the kernel before it on the
// stream has ended; frequencies change over milliseconds, so it tells that kernel's.
class ClockProbe {
 public:
  // Probes that may be queued before their samples are taken.
  static constexpr int32_t kMostSamples = 4096;

  static Result<ClockProbe> create(runtime::Engine& engine, runtime::Device& device);

  // One probe on the default stream. Error kInternal: more than kMostSamples.
  Result<void> run();

  using Sample = ClockSample;
  // All probes since the last call in their order; waits for them.
  Result<std::vector<Sample>> take_samples();

 private:
  runtime::Device* device_ = nullptr;
  std::unique_ptr<runtime::LoadedKernel> kernel_;
  DeviceMemory samples_;
  int32_t count_ = 0;
};

}  // namespace moejit::cli
