// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace moejit::runtime {

// Row-major numbers.
struct Matrix {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::vector<float> values;

  float at(std::size_t row, std::size_t column) const { return values[row * columns + column]; }
};

// Integers from -8 to 8, which every format holds.
Matrix random_integers(std::size_t rows, std::size_t columns, uint32_t seed);

// a * b^T, [a.rows, b.rows].
std::vector<float> product(const Matrix& a, const Matrix& b);

// The bytes of a matrix of integers from -8 to 8 in E4M3, BF16 or F32.
std::vector<std::byte> encoded(const Matrix& matrix, compiler::DType dtype);

// A box of a row-major matrix without gaps between its rows.
compiler::TensorBox box_of(compiler::DType dtype, int64_t columns, int64_t rows,
                           int32_t box_columns, int32_t box_rows, bool is_swizzled);

}  // namespace moejit::runtime
