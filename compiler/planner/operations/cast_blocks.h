// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/block_cast.h"
#include "compiler/recipe.h"

#include <cstdint>

namespace moejit::compiler {

struct KernelContext;
struct KernelPlan;
struct Operation;

// Casts bf16 rows in blocks of 32 or 16 elements, by rows, by columns, or both from one read. Reads
// input [P, columns], counts and offs, or [T, columns] and also row_tokens if rows are gathered.
// Matrices are [E, matrix_rows, columns], with skip [1], a word that makes the kernel do nothing if
// it is not 0. If scales have two levels it reads expert_scales [E] too, without experts [1].
// Writes output, cast by rows, and output_colwise, cast by columns, of the input's shape; each of
// them only if wanted. Codes in blocks of 16 are packed, those by columns transposed.
struct CastBlocks {
  int32_t local_experts = 0;  // 0: all rows are real, and have one scale above the blocks' scales
  int32_t matrix_rows = 0;    // 0: rows belong to groups
  int32_t columns = 0;
  Format format = {};  // of either output
  RowSource source = RowSource::kInOrder;
};

KernelPlan make_kernel(const Operation& operation, const CastBlocks& cast,
                       const KernelContext& context);
inline void narrow(Operation&, const CastBlocks&) {}

}  // namespace moejit::compiler
