// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/gemm.h"
#include "runtime/reference/route.h"
#include "runtime/reference/weight_gradient.h"

#include <cstdint>
#include <span>
#include <vector>

// The computations of layers without quantization that differ from those in reference.h.
namespace moejit::reference {

// The experts' matrices of B, each n columns of the result by k of the contraction, bf16. k is
// contiguous, or n if they are transposed.
struct Bf16Weights {
  std::span<const std::uint16_t> values;  // [E, n, k] or [E, k, n]
  std::int64_t columns = 0;               // n
  std::int64_t depth = 0;                 // k
  bool is_transposed = false;
};

// Computes for every real row r of expert e the sum over k of rows[r, k] * B[e][n, k] in fp64, and
// how far a bf16 result may be from it that was added up in one chain and rounded once. rows: bf16
// [offs[E], k]; all fields of the result are [offs[E], n], pad rows 0.
GemmExact bf16_grouped_gemm_exact(std::span<const std::uint16_t> rows, const Bf16Weights& weights,
                                  const Route& route);

// Computes out[e, i, j] = sum over the rows r of group e of a[r, i] * b[r, j], fp64 [E, a_cols,
// b_cols], and how far a correct fp32 sum may be from it. a: bf16 [offs[E], a_cols], b: bf16
// [offs[E], b_cols].
WeightGradientExact bf16_weight_gradient_exact(std::span<const std::uint16_t> a,
                                               std::int64_t a_cols,
                                               std::span<const std::uint16_t> b,
                                               std::int64_t b_cols, const Route& route);

}  // namespace moejit::reference
