// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/block_cast.h"
#include "compiler/recipe.h"

#include <cstdint>

namespace moejit::compiler {

struct KernelContext;
struct KernelPlan;
struct Operation;

// Casts bf16 rows in groups of 32 elements, by rows, by columns, or both from one read. Reads input
// [P, columns], counts and offs, or [T, columns] and also row_tokens if rows are gathered; of
// matrices [E, matrix_rows, columns], and skip [1], a word that makes the kernel do nothing if it
// is not 0. Writes output, cast by rows, and output_colwise, cast by columns, of the input's shape;
// each of them only if wanted.
struct CastBlocks {
  int32_t local_experts = 0;
  int32_t matrix_rows = 0;  // 0: rows are those of groups
  int32_t columns = 0;
  Format format = {};  // of either output
  RowSource source = RowSource::kInOrder;
};

KernelPlan make_kernel(const Operation& operation, const CastBlocks& cast,
                       const KernelContext& context);
inline void narrow(Operation&, const CastBlocks&) {}

}  // namespace moejit::compiler
