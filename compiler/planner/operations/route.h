// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"

#include <cstdint>

namespace moejit::compiler {

struct KernelContext;
struct KernelPlan;
struct Operation;

// Counts the tokens of each group and gives each choice of an expert its permuted row. Reads
// topk_ids [T, K]. Writes counts [E], offs [E + 1], row_map [T, K] and status; also colwise_offs [E
// + 1], if groups of columns start elsewhere than groups of rows, and saved_tokens [1], if wanted.
struct Route {
  int32_t local_experts = 0;
  int32_t top_k = 0;
  int32_t splits_alignment = 1;
  DType topk_ids = DType::kI32;  // or kI64
  bool ignores_foreign = false;  // whether ids at or above local_experts are like -1
};

KernelPlan make_kernel(const Operation& operation, const Route& route,
                       const KernelContext& context);
inline void narrow(Operation&, const Route&) {}

}  // namespace moejit::compiler
