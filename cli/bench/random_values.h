// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_source.h"
#include "runtime/engine.h"

#include <cstdint>
#include <memory>

namespace moejit::cli {

// The kernel that RandomValues runs.
compiler::KernelSource random_values_source(const compiler::Target& target);

// Random bf16 numbers made on the device, where a host would take seconds for the weights of a
// layer. Value i depends on seed and i alone: the sum of eight uniform numbers, mean 0 and variance
// 1, which is close to normal.
class RandomValues {
 public:
  static Result<RandomValues> create(runtime::Engine& engine, runtime::Device& device);

  // Queues on the default stream. `values` is BF16 [count], 16-byte aligned; a multiple of 8.
  Result<void> fill(void* values, int64_t count, uint64_t seed) const;

 private:
  runtime::Device* device_ = nullptr;
  std::unique_ptr<runtime::LoadedKernel> kernel_;
};

}  // namespace moejit::cli
