// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/compare.h"
#include "runtime/reference/gemm.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/trial/gemm_trial.h"

#include <cstdint>
#include <span>
#include <vector>

namespace moejit::check {

// Some rows of a grouped GEMM, spread evenly over the rows of every expert.
struct RowSample {
  reference::Route route;            // of the chosen rows, packed
  std::vector<int64_t> source_rows;  // where each was
};

// Returns all real rows if there are at most `most_rows`, else `most_rows` of them. The first and
// the last row of every expert are always among them, even beyond `most_rows`.
RowSample sample_rows(const reference::Route& route, int64_t most_rows);

// Some rows of a grouped GEMM, as the operands of a smaller one.
struct GemmSample : RowSample {
  reference::QuantizedRows rows;  // packed
};

// Chooses as many rows as `max_multiply_adds` allow. `columns` is the number of columns of the
// result.
GemmSample sample_gemm(const reference::QuantizedRows& rows, const reference::Route& route,
                       int64_t columns, int64_t max_multiply_adds);

// Returns these rows of a [*, columns] matrix.
std::vector<uint16_t> gather_rows(std::span<const uint16_t> matrix, int64_t columns,
                                  std::span<const int64_t> rows);

// Returns `wanted` numbers below `count`: the first, the last, and random ones, some perhaps twice.
std::vector<int64_t> choose(const reference::RandomStream& random, int64_t wanted, int64_t count);

// Returns all numbers below `count`. If these are more than `affordable`, returns about as many as
// that, at least two, some perhaps twice.
std::vector<int64_t> choose_affordable(const reference::RandomStream& random, double affordable,
                                       int64_t count);

// Compares elements of the session's result with the CPU reference on the operands as the device
// holds them. The seed chooses about 16 000 elements. They are in the first row of each group, the
// last row and some between, and in the first pad row, which must be zeros. In each of these rows
// they are in the first column, the last one and some between; each group has other columns. The
// session must have been launched.
Result<testing::Comparison> check_gemm(trial::GemmTrial& session, uint64_t seed);

// Compares the result of a contraction-grouped GEMM as check_gemm() does. It takes the first row
// and column of each group's matrix, the last ones and some between; each group has other ones. The
// session must have been launched exactly once since its result was new.
Result<testing::Comparison> check_gradient(trial::GemmTrial& session, uint64_t seed);

}  // namespace moejit::check
