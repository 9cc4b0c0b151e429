// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_source.h"
#include "runtime/device_memory.h"
#include "runtime/engine.h"

#include <cstdint>
#include <memory>

namespace moejit::measure {

// Compares memory on the device, since results are large and the way to the host is slow.
class DifferenceCounter {
 public:
  static Result<DifferenceCounter> create(runtime::Engine& engine, runtime::Device& device);

  // Returns in how many 4-byte words two memories of `bytes` bytes, a multiple of 4, differ. Waits
  // for all work of the default stream.
  Result<int64_t> count(const void* a, const void* b, int64_t bytes);

 private:
  runtime::Device* device_ = nullptr;
  std::unique_ptr<runtime::LoadedKernel> kernel_;
  runtime::DeviceMemory differing_;
};

// Returns the source of the kernel that DifferenceCounter runs.
compiler::KernelSource difference_counter_source(const compiler::Target& target);

}  // namespace moejit::measure
