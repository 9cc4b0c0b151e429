// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/transpose.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace moejit::compiler {

// What a kernel does with bf16 rows of groups whose columns have one scale for all rows of a group.
enum class ColumnPass {
  kScales,  // finds the power-of-two scales, [E, columns]
  kCast,    // casts to e4m3 with these scales: [columns, C], or of matrices [E, columns, rows]
};

// One of the two passes over bf16 rows [P, columns], or over matrices [E, rows, columns], that make
// their column-wise operand. The rows of each expert become columns that start at a multiple of
// 128.
struct GroupColumnsSpec {
  ColumnPass pass = ColumnPass::kScales;
  RowSource source = RowSource::kInOrder;
  int32_t local_experts = 0;
  int32_t columns = 0;          // of a row, a multiple of 16
  int32_t sections = 1;         // of matrices: equal parts of the rows
  int32_t section_rows = 0;     // of matrices: rows of each part; 0: experts have rows of tokens
  bool is_interleaved = false;  // of matrices: whether rows of the parts alternate in the input
  // kScales: whether each row has the largest magnitudes of 128 tokens of its expert, from
  // output_offs / 128 on.
  bool has_amax_rows = false;
  float epsilon = 0.0f;        // kScales: smallest amax that a scale is computed for
  int32_t threads = 128;       // of kCast 64 for each half of a tile that a CTA holds
  int32_t threads_per_sm = 0;  // that the compiler leaves registers for; 0: the skeleton says
  bool operator==(const GroupColumnsSpec&) const = default;
};

std::string_view to_string(ColumnPass pass);
std::string to_string(const GroupColumnsSpec& spec);

// Returns whether groups are matrices, whose rows are known before the call.
inline bool has_matrices(const GroupColumnsSpec& spec) { return spec.section_rows > 0; }

// Returns how many CTAs have work in a pass over rows that become `output_columns` columns, a
// multiple of 128. For matrices that number does not matter.
int64_t busy_ctas(const GroupColumnsSpec& spec, int64_t output_columns);

}  // namespace moejit::compiler
