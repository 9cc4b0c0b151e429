// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace moejit::compiler {

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
