// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

// Converts the bytes of operands of wgrad between a matrix [rows, columns] and columns in blocks
// of 128. Kernels take the blocks, [columns / 128, rows, 128]. `columns` is a multiple of 128.

namespace moejit::reference {

namespace detail {

// Returns [outer, inner, 128] as [inner, outer, 128].
inline std::vector<std::uint8_t> exchange_runs(const std::vector<std::uint8_t>& bytes,
                                               std::int64_t outer, std::int64_t inner) {
  std::vector<std::uint8_t> exchanged(bytes.size());
  for (std::int64_t i = 0; i < outer * inner; ++i) {
    const std::int64_t to = i % inner * outer + i / inner;
    std::copy_n(bytes.begin() + 128 * i, 128, exchanged.begin() + 128 * to);
  }
  return exchanged;
}

// Returns `matrices` [2 * half, columns], each with its row `row` at `place_of(row)`.
template <typename T, typename PlaceOf>
std::vector<T> with_rows_at(std::span<const T> matrices, std::int64_t half, std::int64_t columns,
                            PlaceOf place_of) {
  std::vector<T> result(matrices.size());
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const std::int64_t row = static_cast<std::int64_t>(i) / columns, column = i % columns;
    const std::int64_t first = row - row % (2 * half);  // of the matrix
    result[(first + place_of(row - first)) * columns + column] = matrices[i];
  }
  return result;
}

}  // namespace detail

inline std::vector<std::uint8_t> to_column_blocks(const std::vector<std::uint8_t>& matrix,
                                                  std::int64_t columns) {
  return detail::exchange_runs(matrix, std::ssize(matrix) / columns, columns / 128);
}

inline std::vector<std::uint8_t> from_column_blocks(const std::vector<std::uint8_t>& blocks,
                                                    std::int64_t columns) {
  return detail::exchange_runs(blocks, columns / 128, std::ssize(blocks) / columns);
}

// Both return `matrices` [2 * half, columns], row-major, one after the other, with reordered rows.
// gate_first() puts all even rows, gate, before the odd rows, up; interleaved() is the reverse.
template <typename T>
std::vector<T> gate_first(std::span<const T> matrices, std::int64_t half, std::int64_t columns) {
  return detail::with_rows_at(matrices, half, columns,
                              [half](std::int64_t row) { return row % 2 * half + row / 2; });
}
template <typename T>
std::vector<T> interleaved(std::span<const T> matrices, std::int64_t half, std::int64_t columns) {
  return detail::with_rows_at(matrices, half, columns,
                              [half](std::int64_t row) { return row % half * 2 + row / half; });
}

// Returns section 0, gate, or 1, up, of matrices of two such sections of `elements` each.
template <typename T>
std::vector<T> section_of(std::span<const T> matrices, std::size_t section, std::size_t elements) {
  std::vector<T> result;
  for (std::size_t first = section * elements; first < matrices.size(); first += 2 * elements)
    result.insert(result.end(), matrices.begin() + static_cast<std::ptrdiff_t>(first),
                  matrices.begin() + static_cast<std::ptrdiff_t>(first + elements));
  return result;
}

// Returns matrices of two sections of `elements` each, gate first.
template <typename T>
std::vector<T> join_sections(std::span<const T> gate, std::span<const T> up, std::size_t elements) {
  std::vector<T> result;
  for (std::size_t first = 0; first < gate.size(); first += elements)
    for (const std::span<const T> section : {gate, up})
      result.insert(result.end(), section.begin() + static_cast<std::ptrdiff_t>(first),
                    section.begin() + static_cast<std::ptrdiff_t>(first + elements));
  return result;
}

}  // namespace moejit::reference
