// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/transpose.h"
#include "tests/kernels/chains/special_values.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace moejit::testing {

// Rows of bf16 [rows, columns].
struct Bf16Rows {
  int64_t columns = 0;
  std::vector<uint16_t> values;

  uint16_t& at(int64_t row, int64_t column) {
    return values[static_cast<size_t>(row * columns + column)];
  }
  int64_t count() const { return std::ssize(values) / columns; }
};

// Returns values of magnitudes 2^-spread to 1 in the groups' rows; in all others infinity.
inline Bf16Rows random_bf16_rows(const reference::TransposeGroups& groups, int64_t columns,
                                 int spread, uint64_t seed) {
  const int64_t rows = groups.offs.back() + 16;
  Bf16Rows all{columns, std::vector<uint16_t>(static_cast<size_t>(rows * columns), kBf16Infinity)};
  const reference::RandomStream random(seed, 1);
  for (size_t e = 0; e < groups.counts.size(); ++e)
    for (int64_t i = groups.offs[e] * columns; i < (groups.offs[e] + groups.counts[e]) * columns;
         ++i)
      all.values[static_cast<size_t>(i)] = reference::bf16_from_float(static_cast<float>(
          std::ldexp(random.normal(i), -static_cast<int>(random.below(~i, spread + 1)))));
  return all;
}

// Returns bf16 rows [rows, columns] of magnitudes 2^-spread to 1; some are zeros.
inline std::vector<uint16_t> random_bf16_rows(int64_t rows, int64_t columns, int spread,
                                              uint64_t seed) {
  const reference::RandomStream random(seed, 1);
  std::vector<uint16_t> values(static_cast<size_t>(rows * columns));
  for (int64_t i = 0; i < rows * columns; ++i)
    values[static_cast<size_t>(i)] = reference::bf16_from_float(static_cast<float>(
        std::ldexp(random.normal(i), -static_cast<int>(random.below(~i, spread + 1)))));
  for (int64_t row = 5; row < rows; row += 9)
    std::fill_n(values.begin() + row * columns, columns, uint16_t{0});
  return values;
}

}  // namespace moejit::testing
