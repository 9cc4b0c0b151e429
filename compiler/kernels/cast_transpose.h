// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"
#include "compiler/kernels/amax_columns.h"

#include <cstdint>
#include <string>

namespace moejit::compiler {

// Casts bf16 rows of tokens [T, columns] to FP8 with a known scale for each expert, from one read.
// It makes permuted rows [P, columns], and [columns, C], an operand of wgrad with the same bytes.
// The rows of each group become columns that start at a multiple of 128.
struct CastTransposeSpec {
  DType format = DType::kF8E4M3;  // or kF8E5M2
  int32_t local_experts = 0;
  int32_t columns = 0;       // of a row, a multiple of 16
  bool zeroes_rows = false;  // whether rows become zeros that row_tokens marks as zeros
  bool stores_rows = true;   // whether there are permuted rows, too
  AmaxColumns amax = {};     // columns of a state that are raised to the largest magnitudes
  int32_t threads = 256;
  bool operator==(const CastTransposeSpec&) const = default;
};

std::string to_string(const CastTransposeSpec& spec);

}  // namespace moejit::compiler
