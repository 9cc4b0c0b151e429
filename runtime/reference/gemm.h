// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/quantize.h"
#include "runtime/reference/route.h"
#include "runtime/reference/tensor_core.h"

#include <cstdint>
#include <span>
#include <vector>

namespace moejit::reference {

// The order in which a sum of products is multiplied with its two scales. Each product is rounded
// to fp32.
enum class ScaleOrder {
  kProductOfScales,  // sum * (a_scale * b_scale): scales of tensors, of blocks, of tiles
  kRowThenColumn,    // (sum * a_scale) * b_scale: scales of rows and columns
};

// One output element: `length` numbers of a and b from their first ones on, one scale per 128 of
// each.
struct ScaledDot {
  const TensorCoreNumbers& a;
  std::int64_t first_a = 0;
  const TensorCoreNumbers& b;
  std::int64_t first_b = 0;
  const float* a_scales = nullptr;
  const float* b_scales = nullptr;
  std::int64_t length = 0;
};

// Returns what the kernels compute, to the bit. For each 128 * `blocks` elements, ascending, p is
// the chain of their products (tensor_core_chain). It is added in fp32, from 0, by fma(p, a_scale *
// b_scale, sum), or in the other order by fma(p * a_scale, b_scale, sum).
float dot_in_kernel_order(const ScaledDot& dot, std::int64_t blocks,
                          ScaleOrder order = ScaleOrder::kProductOfScales);

// Returns the dot product with negligible rounding.
double dot_in_fp64(const ScaledDot& dot);

// Computes for every real row r of expert e: out[r, n] = sum over k of rows[r, k] * weights[e, n,
// k]. The result is fp32 [offs[E], weights.rows], to the bit as the kernels compute it. Pad rows
// are 0. Per 128 * `blocks` of k, ascending:
//   p   = the sum of the products of fp8 values, as the tensor cores add them (tensor_core_chain)
//   acc = fma(p, s_row * s_weight, acc)      in fp32, acc starts at 0; the scales' product is
//                                            rounded to fp32, and exact for powers of two
// `blocks` is 1, or 2 if neighboring blocks of k share their scales; the last block of an odd
// number stands alone.
std::vector<float> grouped_gemm_sums(const QuantizedRows& rows, const QuantizedWeights& weights,
                                     const Route& route, std::int64_t blocks = 1);

// Returns the sums of grouped_gemm_sums(), rounded to bf16.
std::vector<std::uint16_t> grouped_gemm(const QuantizedRows& rows, const QuantizedWeights& weights,
                                        const Route& route, std::int64_t blocks = 1);

// Returns the product with negligible rounding, [offs[E], weights.rows]; pad rows are 0.
std::vector<double> grouped_gemm_in_fp64(const QuantizedRows& rows, const QuantizedWeights& weights,
                                         const Route& route);

// The computations of layers without quantization, where they differ from reference.h.

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
                                          const Bf16Weights& weights, const Route& route,
                                          const TensorCoreRule& rule = {});

// Returns the sums of bf16_grouped_gemm_sums(), rounded to bf16.
std::vector<std::uint16_t> bf16_grouped_gemm(std::span<const std::uint16_t> rows,
                                             const Bf16Weights& weights, const Route& route);

// Computes out[e, i, j], the sum over the rows r of group e of a[r, i] * b[r, j], fp32 [E, a_cols,
// b_cols]. It has the bits of the kernels, which add in one chain. a: bf16 [offs[E], a_cols], b:
// bf16 [offs[E], b_cols].
std::vector<float> bf16_weight_gradient(std::span<const std::uint16_t> a, std::int64_t a_cols,
                                        std::span<const std::uint16_t> b, std::int64_t b_cols,
                                        const Route& route, const TensorCoreRule& rule = {});

// Computes out[e, i, j], fp32 [E, a.rows, b.rows], to the bit as the kernels. It is the sum over
// the columns c of group e of a[i, c] * b[j, c]. a and b hold tokens as columns, whose groups start
// at multiples of 128. For each 128 columns of a group, ascending, p is the sum of the products as
// the tensor cores add them (tensor_core_chain). It is added by fma(), from 0. With scales of
// tiles, the two scales are multiplied with each other first. With scales of rows, the sum is
// multiplied with a's first: dot_in_kernel_order(). Groups without columns are zeros.
std::vector<float> weight_gradient(const QuantizedRows& a, const QuantizedRows& b,
                                   const Route& route,
                                   ScaleOrder order = ScaleOrder::kProductOfScales);

}  // namespace moejit::reference
