// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/check/layer_results.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace moejit::cli {

// Rows of A that come in sections, filled up with rows that the gradient has not.
struct RowSections {
  int64_t rows = 0;             // of the gradient, in a section
  int64_t padded_rows = 0;      // of A
  bool is_interleaved = false;  // rows of two sections alternate in the gradient

  bool has(int64_t a_row) const { return a_row % padded_rows < rows; }
  int64_t gradient_row(int64_t a_row) const {
    const int64_t section = a_row / padded_rows, row = a_row % padded_rows;
    return is_interleaved ? 2 * row + section : section * rows + row;
  }
  int64_t gradient_rows(int64_t a_rows) const { return a_rows / padded_rows * rows; }
};

// Whether the elements `at` of a weight's gradient, F32 or BF16, are the wanted ones, which before
// a rounding to bf16 may be off by `bounds`.
TensorCheck check_gradient_elements(const LayerResults& results, std::string_view tensor,
                                    std::span<const size_t> at, const std::vector<double>& wanted,
                                    std::vector<double> bounds);

// Whether `tensor` [E, a.rows without those that fill up, b.rows] is a * b^T over each expert's
// columns, with the operands
// "<a>_colwise_q" and "<b>_colwise_q" and one scale for each 128x128 tile. Experts' columns start
// at `offs`. Some rows and columns of every expert where the CPU would take too long.
TensorCheck check_weight_gradient(const LayerResults& results, std::string_view tensor,
                                  std::string_view a, std::string_view b,
                                  std::span<const int32_t> offs, const RowSections& sections);

}  // namespace moejit::cli
