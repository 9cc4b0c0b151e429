// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/planner/operations/quantize.h"

#include <cstdint>
#include <optional>

namespace moejit::compiler {

// Moves the rows of tokens to their experts' groups, and fills up the groups with zeros.
// Reads input [T, columns], row_map, counts and offs, and probs [T, K] where it moves them. Writes
// output [P, columns]; output_probs [P] and row_tokens [P], whose row each is, if wanted.
// Where it quantizes, kept_output [T, columns] are the rows that it has quantized, if wanted.
struct PermutePad {
  int32_t columns = 0;
  int32_t experts = 0;  // of the whole model, over which choices are spread
  int32_t local_experts = 0;
  int32_t top_k = 0;
  DType probs = DType::kF32;                  // of those that move; or kBF16
  std::optional<QuantizeRows> quantize = {};  // on the way
};

KernelPlan make_kernel(const Operation& operation, const PermutePad& permute,
                       const KernelContext& context);

// Puts an operation that quantizes rows and the one that permutes them together.
Operation with_quantize(const Operation& permute, const Operation& quantize);
// Returns what permutes the rows that such an operation, or one before it, has quantized.
Operation without_quantize(const Operation& permute);

// Without output, what is left is to quantize rows.
void narrow(Operation& operation, const PermutePad& permute);

}  // namespace moejit::compiler
