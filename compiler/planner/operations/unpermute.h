// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"

#include <cstdint>

namespace moejit::compiler {

struct KernelContext;
struct KernelPlan;
struct Operation;

// Adds up the permuted rows of each token, and gathers the gradients of its probabilities.
// Reads row_map; input [P, columns] for output [T, columns]; dprobs_blocks [P, ceil(I / 128)] and,
// where b2 meets the probability, bias_dprobs [P] for dprobs [T, K]. Writes output and dprobs,
// either if wanted.
struct Unpermute {
  int32_t columns = 0;
  int32_t top_k = 0;
  int32_t dprobs_columns = 0;  // blocks of a row in dprobs_blocks
  DType probs = DType::kF32;   // of dprobs; or kBF16
};

KernelPlan make_kernel(const Operation& operation, const Unpermute& unpermute,
                       const KernelContext& context);

// Reads nothing for a write that is left out.
void narrow(Operation& operation, const Unpermute& unpermute);

}  // namespace moejit::compiler
