// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/group_columns.h"
#include "compiler/recipe.h"

#include <cstdint>

namespace moejit::compiler {

struct KernelContext;
struct KernelPlan;
struct Operation;

// The rows that share the scales of their columns. They are the real rows of each expert's group,
// or, where section_rows is not 0, matrices of `sections` equal parts of so many rows.
struct ColumnGroups {
  int32_t local_experts = 0;
  int32_t columns = 0;
  int32_t sections = 1;
  int32_t section_rows = 0;
  bool is_interleaved = false;  // whether rows of the parts alternate in the input
};

// Finds the scales of columns. Reads input [P, columns] in bf16, counts and offs, or [T, columns]
// and row_tokens too if rows are gathered. For matrices it reads input [E, rows, columns] and skip
// [1], a word that makes the kernel do nothing if it is not 0. With `has_amax_rows` the input is
// the largest magnitudes [C / 128, columns] of 128 tokens of each column, and it reads output_offs
// too. Writes output_scale_inv [E, columns].
struct ScaleColumns {
  ColumnGroups groups;
  Format format = {};
  RowSource source = RowSource::kInOrder;
  bool has_amax_rows = false;
};

// Casts columns with their scales to an operand of a GEMM. Reads what ScaleColumns reads, and
// input_scale_inv [E, columns]; of rows output_offs, the starts of the groups of columns. Writes
// output [C / 128, columns, 128], of matrices [E, columns, rows].
struct CastColumns {
  ColumnGroups groups;
  RowSource source = RowSource::kInOrder;
};

KernelPlan make_kernel(const Operation& operation, const ScaleColumns& scales,
                       const KernelContext& context);
KernelPlan make_kernel(const Operation& operation, const CastColumns& cast,
                       const KernelContext& context);
inline void narrow(Operation&, const ScaleColumns&) {}
inline void narrow(Operation&, const CastColumns&) {}

}  // namespace moejit::compiler
