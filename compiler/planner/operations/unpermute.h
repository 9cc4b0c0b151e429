// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"

#include <cstdint>

namespace moejit::compiler {

struct KernelContext;
struct KernelPlan;
struct Operation;

// Adds up the permuted rows of each token, and gathers the gradients of its probabilities. Reads
// row_map; input [P, columns] for output [T, columns]; dprobs_blocks [P, ceil(I / 128)] for dprobs
// [T, K]. If b2 is multiplied by the probability it reads bias_dprobs [P] too. Writes output and
// dprobs, each of them only if wanted.
struct Unpermute {
  int32_t columns = 0;
  int32_t top_k = 0;
  int32_t dprobs_columns = 0;  // blocks of each row in dprobs_blocks
  DType probs = DType::kF32;   // type of dprobs; kF32 or kBF16
};

KernelPlan make_kernel(const Operation& operation, const Unpermute& unpermute,
                       const KernelContext& context);

// Drops the reads that only a left-out write needs.
void narrow(Operation& operation, const Unpermute& unpermute);

}  // namespace moejit::compiler
