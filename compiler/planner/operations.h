// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"

#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

// The operations of a layer before anything is said about kernels.
enum class Operation {
  kQuantizeW1,
  kQuantizeW2,
  kQuantize,
  kRoute,
  kPermutePad,
  kQuantizePermutePad,  // quantize and permute_pad in one kernel
  kGemmFc1,
  kSwigluQuantize,
  kGemmFc1SwigluQuantize,  // both in one kernel
  kGemmFc2,
  kUnpermute,
};

std::string_view to_string(Operation operation);
bool is_gemm(Operation operation);

// Name of the tensor in which a GEMM tells how long it ran (PlanOptions::measure_gemms).
std::string elapsed_tensor(Operation operation);

// What a forward pass of recipe fp8_flow does, in order; weights first. No two operations are
// fused yet, every operation reads only what earlier ones wrote.
std::vector<Operation> forward_operations();

// Joins neighbours where that saves traffic and nothing else needs the tensor between them. Each
// decision, taken or not, adds a sentence to `reasons`.
std::vector<Operation> fuse_operations(const std::vector<Operation>& operations, const Layer& layer,
                                       const PlanOptions& options,
                                       std::vector<std::string>& reasons);

// Every tensor that these operations touch, shapes at their bounds, lifetimes not yet known.
std::vector<TensorPlan> make_tensors(const Layer& layer, const std::vector<Operation>& operations,
                                     const PlanOptions& options);

// The kernel that does one operation: stages, tiles, arguments and reasons; launch and work
// counts are filled in by plan_layer().
KernelPlan make_kernel(Operation operation, const Layer& layer, const Target& target,
                       const PlanOptions& options);

}  // namespace moejit::compiler
