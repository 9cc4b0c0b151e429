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
// or for both from one read. Groups start at multiples of 32 rows.
struct BlockCastSpec {
  RowSource source = RowSource::kInOrder;
  CastResult result = CastResult::kCodes;
  bool casts_rows = false;
  bool casts_columns = true;
  int32_t local_experts = 0;  // groups of rows
  int32_t matrix_rows = 0;    // 0, or every group is a matrix of so many rows, a multiple of 32
  int32_t columns = 0;        // of a row, a multiple of 16
  int32_t threads = 128;      // 32 for each block that a CTA holds
  bool operator==(const BlockCastSpec&) const = default;
};

std::string to_string(const BlockCastSpec& spec);

}  // namespace moejit::compiler
