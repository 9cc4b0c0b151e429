// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"
#include "compiler/kernels/amax_columns.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

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

// Casts a list of tensors [rows, columns], each with a known scale, to FP8 and to its transpose.
// Writes their largest magnitudes too, for delayed scaling. Each CTA has one 128x128 tile of any
// tensor of the list.
struct MultiCastTransposeSpec {
  DType input = DType::kBF16;     // or kF32
  DType output = DType::kF8E4M3;  // or kF8E5M2
  int32_t threads = 256;
  bool operator==(const MultiCastTransposeSpec&) const = default;
};

std::string to_string(const MultiCastTransposeSpec& spec);

// The size of a matrix; rows and columns may be 0.
struct MatrixSize {
  int64_t rows = 0;
  int64_t columns = 0;
  bool operator==(const MatrixSize&) const = default;
};
// Returns the argument `tile_ends` of a multi-cast-transpose. For each tensor of the list it is the
// number of 128x128 tiles of the tensor and of all tensors before it. The last one is also the
// number of CTAs that have work.
std::vector<int64_t> cast_transpose_tile_ends(std::span<const MatrixSize> sizes);

}  // namespace moejit::compiler
