// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/column_cast.h"
#include "compiler/recipe.h"

#include <cstdint>

namespace moejit::compiler {

struct KernelContext;
struct KernelPlan;
struct Operation;

// Casts values to an operand of wgrad, with a scale for 128 tokens of each column. Reads input [P,
// columns] in bf16, or [T, columns] and row_tokens if rows are gathered. Reads counts, offs and
// output_offs, the starts of the groups of columns. Writes output [C / 128, columns, 128].
struct QuantizeColumns {
  int32_t local_experts = 0;
  int32_t columns = 0;
  Format format = {};
  RowSource source = RowSource::kInOrder;
};

KernelPlan make_kernel(const Operation& operation, const QuantizeColumns& cast,
                       const KernelContext& context);
inline void narrow(Operation&, const QuantizeColumns&) {}

}  // namespace moejit::compiler
