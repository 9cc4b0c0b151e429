// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/amax_columns.h"
#include "compiler/kernels/group_columns.h"
#include "compiler/layer.h"
#include "compiler/recipe.h"

#include <cstdint>
#include <string_view>

namespace moejit::compiler {

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

// Copies scales of an operand of fc1 and of one of fc2 out of their states. Reads fc1_stored and
// fc2_stored, the scales of a state. For weights it reads skip [1] too, a word that makes the
// kernel do nothing if it is not 0. Writes fc1_scale [E] and fc2_scale [E], each only if wanted,
// with their inverses as its scale_inv.
struct TakeScales {
  int32_t experts = 0;
  AmaxColumns columns = {};
};

// Moves the histories of fc1 and fc2 on by a step and finds the scales of the next one. Reads and
// writes fc1_amax_history [L, columns], fc1_scale [columns], and fc2_amax_history and fc2_scale.
struct UpdateScales {
  int32_t columns = 0;
  int32_t history_length = 0;
  float largest = 0.0f;  // the format's largest number times 2^-margin
  AmaxComputeAlgo algorithm = AmaxComputeAlgo::kMax;
};

// Explains the kernels that look at rows before others cast them.
inline constexpr std::string_view kAmaxReason =
    "the scale of an expert is known only after a look at all of its rows; magnitudes are written, "
    "not the rows";

// Finds the largest magnitudes of the experts' matrices. Reads input [E, rows, columns] and skip
// [1], a word that makes the kernel do nothing if it is not 0. Writes output [E, pieces].
struct MatrixAmax {
  int32_t rows = 0;
  int32_t columns = 0;
};

// Finds the largest magnitudes of bf16 rows. Reads input [P, columns], counts and offs. Writes
// output [P, ceil(columns / 512)].
struct RowAmax {
  int32_t local_experts = 0;
  int32_t columns = 0;
};

// Returns how many magnitudes an expert's matrix has.
int64_t pieces_of(const MatrixAmax& amax);

// Finds a scale for each expert. Reads amax: [P, magnitudes] with counts and offs, or [E,
// magnitudes] of matrices, with skip [1]. Writes scale [E] and scale_inv [E].
struct ExpertScales {
  Format format = {};
  int64_t magnitudes = 0;
};

}  // namespace moejit::compiler
