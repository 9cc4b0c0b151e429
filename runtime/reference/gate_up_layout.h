// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moejit::reference {

// Both return `matrices` [2 * half, columns], row-major, one after the other, with reordered rows.
// gate_first() puts all even rows, gate, before the odd rows, up; interleaved() is the reverse.
template <typename T>
std::vector<T> gate_first(std::span<const T> matrices, std::int64_t half, std::int64_t columns) {
  std::vector<T> result(matrices.size());
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const std::int64_t row = static_cast<std::int64_t>(i) / columns, column = i % columns;
    const std::int64_t matrix = row / (2 * half), in_matrix = row % (2 * half);
    const std::int64_t to = 2 * half * matrix + in_matrix % 2 * half + in_matrix / 2;
    result[to * columns + column] = matrices[i];
  }
  return result;
}
template <typename T>
std::vector<T> interleaved(std::span<const T> matrices, std::int64_t half, std::int64_t columns) {
  std::vector<T> result(matrices.size());
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const std::int64_t row = static_cast<std::int64_t>(i) / columns, column = i % columns;
    const std::int64_t matrix = row / (2 * half), in_matrix = row % (2 * half);
    const std::int64_t to = 2 * half * matrix + in_matrix % half * 2 + in_matrix / half;
    result[to * columns + column] = matrices[i];
  }
  return result;
}

}  // namespace moejit::reference
