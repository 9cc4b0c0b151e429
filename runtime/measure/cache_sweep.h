// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device_memory.h"
#include "runtime/engine.h"

#include <cstdint>
#include <memory>

namespace moejit::measure {

// Empties a device's caches by reading a buffer far larger than they are. Unlike a fill, this
// leaves almost no dirty lines, whose write-back would count as traffic of the kernel timed next.
//
// The reader is one of our own kernels: the dots of rows and a bias. Its results depend on every
// byte, so that none can be skipped.
class CacheSweep {
 public:
  // Is far larger than the L2 cache of the target's GPUs, which has 50 to 60 MiB.
  static constexpr int64_t kBytes = int64_t{256} << 20;

  // Reads `bytes`, rounded up to whole rows of 16 KiB, in each sweep. Sweeps once, and checks by
  // the results that all was read: error kInternal if not.
  static Result<CacheSweep> create(runtime::Engine& engine, runtime::Device& device,
                                   int64_t bytes = kBytes);

  // Queues one sweep on the default stream.
  Result<void> run();

 private:
  Result<void> check_sums();

  runtime::Device* device_ = nullptr;
  int64_t rows_ = 0;
  std::unique_ptr<runtime::LoadedKernel> kernel_;
  runtime::DeviceMemory values_, bias_, groups_, sums_;
};

}  // namespace moejit::measure
