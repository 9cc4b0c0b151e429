// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/gemm.h"

#include <cstdint>
#include <span>
#include <vector>

namespace moejit::check {

// Some rows, spread evenly over those of every expert.
struct RowSample {
  reference::Route route;            // of the chosen rows, packed
  std::vector<int64_t> source_rows;  // where each was
};

// All real rows if these are at most `most_rows`, else as many as that, but at least the first and
// the last one of every expert.
RowSample sample_rows(const reference::Route& route, int64_t most_rows);

// A grouped GEMM on some of its rows.
struct GemmSample : RowSample {
  reference::QuantizedRows rows;  // packed
};

// As many rows as the product takes at most `max_multiply_adds` for. `columns` is that of the
// result.
GemmSample sample_gemm(const reference::QuantizedRows& rows, const reference::Route& route,
                       int64_t columns, int64_t max_multiply_adds);

// Rows of a [*, columns] matrix.
std::vector<uint16_t> gather_rows(std::span<const uint16_t> matrix, int64_t columns,
                                  std::span<const int64_t> rows);

}  // namespace moejit::check
