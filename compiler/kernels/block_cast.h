// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/transpose.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace moejit::compiler {

// What a cast leaves of its input.
enum class CastResult {
  kCodes,   // e4m3, and the E8M0 scales of groups of 32
  kValues,  // the values that codes and scales give, in bf16
};

std::string_view to_string(CastResult result);

// Casts bf16 rows [P, columns]. There is a scale for 32 columns of a row, for 32 rows of a column,
// or for both from one read. Groups start at multiples of 32 rows, or anywhere.
struct BlockCastSpec {
  RowSource source = RowSource::kInOrder;
  CastResult result = CastResult::kCodes;
  bool casts_rows = false;
  bool casts_columns = true;
  bool starts_anywhere = false;  // whether groups may start at any row; only of values
  int32_t local_experts = 0;     // groups of rows
  int32_t matrix_rows = 0;       // 0, or every group is a matrix of so many rows, a multiple of 32
  int32_t columns = 0;           // of a row, a multiple of 16
  int32_t threads = 128;         // 32 for each block that a CTA holds
  bool operator==(const BlockCastSpec&) const = default;
};

std::string to_string(const BlockCastSpec& spec);

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

// Puts scales of groups of 32 or 16 in the order in which Blackwell's GEMMs read them, expert by
// expert. Zeros fill each up to tiles of 128 rows (or columns) by 4 scales.
struct SwizzleScalesSpec {
  bool of_columns = false;    // whether a scale belongs to tokens of a column, not to columns
  int32_t group = 32;         // elements that share a scale: 32 (E8M0) or 16 (E4M3)
  int32_t local_experts = 0;  // groups of rows
  int32_t columns = 0;        // of the rows that were cast, a multiple of 16
  bool operator==(const SwizzleScalesSpec&) const = default;
};

std::string to_string(const SwizzleScalesSpec& spec);

}  // namespace moejit::compiler
