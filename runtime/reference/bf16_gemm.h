// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/route.h"

#include <cstdint>
#include <span>
#include <vector>

// The computations of layers without quantization, where they differ from reference.h.
namespace moejit::reference {

// The experts' matrices of B, each n columns of the result by k of the contraction, bf16. k is
// contiguous, or n if they are transposed.
struct Bf16Weights {
  std::span<const std::uint16_t> values;  // [E, n, k] or [E, k, n]
  std::int64_t columns = 0;               // n
  std::int64_t depth = 0;                 // k
  bool is_transposed = false;
};

// Computes for every real row r of expert e the sum over k of rows[r, k] * B[e][n, k], fp32
// [offs[E], n]. It has the bits of the kernels: one chain of the tensor cores (tensor_core_chain).
// rows: bf16 [offs[E], k]. Pad rows are 0.
std::vector<float> bf16_grouped_gemm_sums(std::span<const std::uint16_t> rows,
                                          const Bf16Weights& weights, const Route& route);

// Returns the sums of bf16_grouped_gemm_sums(), rounded to bf16.
std::vector<std::uint16_t> bf16_grouped_gemm(std::span<const std::uint16_t> rows,
                                             const Bf16Weights& weights, const Route& route);

// Computes out[e, i, j], the sum over the rows r of group e of a[r, i] * b[r, j], fp32 [E, a_cols,
// b_cols]. It has the bits of the kernels, which add in one chain. a: bf16 [offs[E], a_cols], b:
// bf16 [offs[E], b_cols].
std::vector<float> bf16_weight_gradient(std::span<const std::uint16_t> a, std::int64_t a_cols,
                                        std::span<const std::uint16_t> b, std::int64_t b_cols,
                                        const Route& route);

}  // namespace moejit::reference
