// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/quantize.h"
#include "runtime/reference/route.h"

#include <cstdint>
#include <vector>

namespace moejit::reference {

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

}  // namespace moejit::reference
