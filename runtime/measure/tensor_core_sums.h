// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_source.h"
#include "runtime/device.h"
#include "runtime/engine.h"
#include "templates/moejit_device/params/measure_params.h"

#include <cstdint>
#include <vector>

namespace moejit::measure {

// Operands of products of 64 rows by 8 columns, one after the other. A row has 128 bytes of the
// contraction: 128 elements of FP8, or 64 of bf16, little-endian.
struct TensorCoreProblems {
  device::ProductFormats formats = device::ProductFormats::kBf16;
  std::vector<uint8_t> a;  // [problems, 64, 128]
  std::vector<uint8_t> b;  // [problems, 8, 128]
};

// Returns fp32 [problems, 64, 8]: what the tensor cores of the device add up, from 0 on, by the
// instructions of its target's grouped GEMMs. Waits for the end. Errors: of the compiler, the
// cache, the device.
Result<std::vector<float>> tensor_core_sums(const TensorCoreProblems& problems,
                                            runtime::Engine& engine, runtime::Device& device);

// Returns the source of the kernel that tensor_core_sums() runs.
compiler::KernelSource tensor_core_sums_source(const compiler::Target& target);

}  // namespace moejit::measure
