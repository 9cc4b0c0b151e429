// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/quantize.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/transpose.h"
#include "tests/kernels/chains/transpose_groups.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace moejit::testing {

// Returns as many groups as most tests have, empty ones behind the others: the number of groups and
// the columns make a kernel of their own.
inline reference::TransposeGroups usual_groups_of(std::vector<int32_t> counts, int32_t alignment) {
  counts.resize(kTransposeCounts.size());
  return groups_of(counts, alignment);
}

// Random bytes and scales 2^0 to 2^-spread in the groups' rows; in all others NaN, and scales that
// are the largest there are.
inline reference::QuantizedRows random_rows(const reference::TransposeGroups& groups,
                                            int64_t columns, int spread, uint64_t seed) {
  const int64_t rows = groups.offs.back() + 16;
  const auto size = static_cast<size_t>(rows * columns);
  reference::QuantizedRows input{
      .rows = rows,
      .cols = columns,
      .q = std::vector<uint8_t>(size, 0x7f),
      .scale_inv = std::vector<float>(static_cast<size_t>(rows * reference::block_count(columns)),
                                      0x1p127f)};
  const reference::RandomStream random(seed, 1);
  for (size_t e = 0; e < groups.counts.size(); ++e) {
    const int64_t end = groups.offs[e] + groups.counts[e];
    for (int64_t i = groups.offs[e] * columns; i < end * columns; ++i)
      input.q[static_cast<size_t>(i)] = static_cast<uint8_t>(random.below(i, 256));
    for (int64_t i = groups.offs[e] * reference::block_count(columns);
         i < end * reference::block_count(columns); ++i)
      input.scale_inv[static_cast<size_t>(i)] =
          std::ldexp(1.0f, -static_cast<int>(random.below(~i, spread + 1)));
  }
  return input;
}

// The rows of random tokens, and every fifth one as zeros.
inline std::vector<int32_t> random_row_tokens(const reference::TransposeGroups& groups,
                                              int64_t tokens, uint64_t seed) {
  std::vector<int32_t> row_tokens(static_cast<size_t>(groups.offs.back() + 16), 0x7fffffff);
  const reference::RandomStream random(seed, 2);
  for (size_t e = 0; e < groups.counts.size(); ++e)
    for (int32_t row = groups.offs[e]; row < groups.offs[e] + groups.counts[e]; ++row) {
      const auto token = static_cast<int32_t>(random.below(row, tokens));
      row_tokens[static_cast<size_t>(row)] = row % 5 == 0 ? ~token : token;
    }
  return row_tokens;
}

// What permuting makes of tokens' rows: those of ~token become zeros and keep their scales.
inline reference::QuantizedRows permuted(const reference::QuantizedRows& tokens,
                                         const reference::TransposeGroups& groups,
                                         const std::vector<int32_t>& row_tokens, bool has_zeros) {
  reference::QuantizedRows rows = random_rows(groups, tokens.cols, 0, 0);
  const int64_t columns = tokens.cols, blocks = reference::block_count(columns);
  for (size_t e = 0; e < groups.counts.size(); ++e)
    for (int64_t row = groups.offs[e]; row < groups.offs[e] + groups.counts[e]; ++row) {
      const int32_t of = row_tokens[static_cast<size_t>(row)];
      const int64_t token = of < 0 ? ~of : of;
      std::copy_n(tokens.q.begin() + token * columns, columns, rows.q.begin() + row * columns);
      if (of < 0 && has_zeros) std::fill_n(rows.q.begin() + row * columns, columns, uint8_t{0});
      std::copy_n(tokens.scale_inv.begin() + token * blocks, blocks,
                  rows.scale_inv.begin() + row * blocks);
    }
  return rows;
}

}  // namespace moejit::testing
