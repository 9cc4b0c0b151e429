// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"
#include "compiler/kernel_source.h"
#include "runtime/device_memory.h"
#include "runtime/engine.h"

#include <cstdint>
#include <memory>

namespace moejit::measure {

// Fills memory with random numbers on the device, because a host would take seconds for the weights
// of a layer. Value i depends only on seed and i. It is the sum of eight uniform numbers, which is
// close to normal, with mean 0. The deviation is 1 in bf16 and 64 in e4m3 (whose largest number is
// 7 times that). `dtype` is kBF16 or kF8E4M3. The memory is 16-byte aligned, and holds a multiple
// of 8 numbers. Waits for the end.
Result<void> fill_random(const runtime::NamedMemory& values, compiler::DType dtype, uint64_t seed,
                         runtime::Engine& engine, runtime::Device& device);
// Returns the source of the kernel that fill_random() runs.
compiler::KernelSource random_values_source(compiler::DType dtype, const compiler::Target& target);

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
