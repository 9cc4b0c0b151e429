// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/block_cast.h"

#include <cstdint>
#include <string>

namespace moejit::compiler {

// Casts bf16 rows [P, columns] to E2M1 with scales of E4M3 for blocks of 16 elements. Above these
// is a scale in fp32 of each group or matrix, which is known before (docs/recipes.md, nvfp4).
// Blocks are 16 columns of a row, 16 rows of a column, or tiles of 16x16. Groups start at multiples
// of 16 rows. Without groups and matrices all rows have one scale.
struct TwoLevelCastSpec {
  RowSource source = RowSource::kInOrder;
  CastResult result = CastResult::kCodes;
  bool has_tiles = false;  // whether blocks are 16x16
  bool casts_rows = false;
  bool casts_columns = true;
  int32_t local_experts = 0;  // groups of rows, or 0
  int32_t matrix_rows = 0;    // 0, or every group is a matrix of so many rows, a multiple of 16
  int32_t columns = 0;        // of a row, a multiple of 16
  int32_t threads = 128;      // 32 for each stripe of 16 rows that a CTA holds
  bool operator==(const TwoLevelCastSpec&) const = default;
};

// Returns the columns of transposed codes where rows are `rows` at most: the next multiple of 16.
int64_t two_level_pitch(int64_t rows);

std::string to_string(const TwoLevelCastSpec& spec);

}  // namespace moejit::compiler
