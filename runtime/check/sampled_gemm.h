// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/measure/gemm_session.h"
#include "runtime/reference/compare.h"
#include "runtime/reference/gemm.h"
#include "runtime/reference/random_inputs.h"

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

// `wanted` of the numbers below `count`: the first, the last, and any between, some perhaps twice.
std::vector<int64_t> choose(const reference::RandomStream& random, int64_t wanted, int64_t count);

// All numbers below `count`, or as many as can be afforded, at least two.
std::vector<int64_t> choose_affordable(const reference::RandomStream& random, double affordable,
                                       int64_t count);

// Compares elements of the session's result with the CPU reference on the operands as the device
// holds them: of every group the first row, the last one and some between, and its first pad row,
// which has to be zeros; of these the first column, the last one and some between, others in each
// group. About 16 000 elements, chosen by the seed. The session has been launched.
Result<testing::Comparison> check_gemm(measure::GemmSession& session, uint64_t seed);

// check_gemm() of a contraction-grouped GEMM: of every group's matrix the first row and column, the
// last ones and some between, others in each group. The session has been launched once since its
// result was new.
Result<testing::Comparison> check_gradient(measure::GemmSession& session, uint64_t seed);

}  // namespace moejit::check
