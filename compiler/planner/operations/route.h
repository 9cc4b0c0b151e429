// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"

#include <cstdint>

namespace moejit::compiler {

struct KernelContext;
struct KernelPlan;
struct Operation;

// Counts the tokens of each group and gives each choice of an expert its permuted row.
// Reads topk_ids [T, K]. Writes counts [E], offs [E + 1], row_map [T, K] and status; colwise_offs
// [E + 1], where groups of columns start elsewhere, and saved_tokens [1] only if wanted.
struct Route {
  int32_t local_experts = 0;
  int32_t top_k = 0;
  int32_t splits_alignment = 1;
  DType topk_ids = DType::kI32;  // or kI64
  bool ignores_foreign = false;  // ids at or above local_experts are like -1, and no mistake
};

KernelPlan make_kernel(const Operation& operation, const Route& route,
                       const KernelContext& context);
inline void narrow(Operation&, const Route&) {}

}  // namespace moejit::compiler
