// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/transpose.h"

#include <cstdint>
#include <string>

namespace moejit::compiler {

// Turns bf16 rows [P, columns] into [columns, C], an operand of wgrad in e4m3 with a power-of-two
// scale for 128 tokens of each column. The rows of each group become columns that start at a
// multiple of 128, where its blocks start too.
struct ColumnCastSpec {
  RowSource source = RowSource::kInOrder;
  int32_t local_experts = 0;
  int32_t columns = 0;         // of a row, a multiple of 16
  float epsilon = 0.0f;        // smallest amax that a scale is computed for
  int32_t threads = 128;       // 64 for each half of a tile that a CTA holds
  int32_t threads_per_sm = 0;  // that the compiler leaves registers for; 0: the skeleton says
  bool operator==(const ColumnCastSpec&) const = default;
};

std::string to_string(const ColumnCastSpec& spec);

// Returns how many CTAs have work in a cast into `output_columns` columns, a multiple of 128.
int64_t busy_ctas(const ColumnCastSpec& spec, int64_t output_columns);

}  // namespace moejit::compiler
