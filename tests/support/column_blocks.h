// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

// Bytes of operands of wgrad: as a matrix [rows, columns], and with the columns in blocks of 128,
// [columns / 128, rows, 128], as kernels take them. `columns` is a multiple of 128.
namespace moejit::testing {

inline std::size_t place_in_blocks(std::size_t row, std::size_t column, std::size_t rows) {
  return (column / 128 * rows + row) * 128 + column % 128;
}

inline std::vector<std::uint8_t> to_column_blocks(const std::vector<std::uint8_t>& matrix,
                                                  std::int64_t columns) {
  std::vector<std::uint8_t> blocks(matrix.size());
  const auto width = static_cast<std::size_t>(columns);
  const std::size_t rows = matrix.size() / width;
  for (std::size_t i = 0; i < matrix.size(); ++i)
    blocks[place_in_blocks(i / width, i % width, rows)] = matrix[i];
  return blocks;
}

inline std::vector<std::uint8_t> from_column_blocks(const std::vector<std::uint8_t>& blocks,
                                                    std::int64_t columns) {
  std::vector<std::uint8_t> matrix(blocks.size());
  const auto width = static_cast<std::size_t>(columns);
  const std::size_t rows = blocks.size() / width;
  for (std::size_t i = 0; i < matrix.size(); ++i)
    matrix[i] = blocks[place_in_blocks(i / width, i % width, rows)];
  return matrix;
}

}  // namespace moejit::testing
