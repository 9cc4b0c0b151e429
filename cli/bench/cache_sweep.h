// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/execution/device_memory.h"
#include "runtime/engine.h"

#include <cstddef>
#include <memory>

namespace moejit::cli {

// Empties a device's caches by reading a buffer far larger than they are. Unlike a fill it leaves
// no dirty lines behind, whose way to memory would be counted as traffic of the kernel timed next.
//
// The reader is one of our own kernels: permute_pad over rows that are routed nowhere reads every
// row and writes nothing.
class CacheSweep {
 public:
  static Result<CacheSweep> create(runtime::Engine& engine, runtime::Device& device);

  // One sweep on the default stream.
  Result<void> run();

 private:
  runtime::Device* device_ = nullptr;
  std::unique_ptr<runtime::LoadedKernel> kernel_;
  DeviceMemory rows_, scales_, row_map_, probs_, groups_;
};

}  // namespace moejit::cli
