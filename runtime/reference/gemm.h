// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/quantize.h"
#include "runtime/reference/route.h"

#include <cstdint>
#include <vector>

namespace moejit::reference {

// Computes for every real row r of expert e: out[r, n] = sum over k of rows[r, k] * weights[e, n,
// k], with out bf16 [offs[E], weights.rows]. Pad rows are 0. Per 128 * `blocks` of k, ascending:
//   p   = the sum of the products of fp8 values, exact, then rounded once to fp32
//   acc = fma(p, s_row * s_weight, acc)      in fp32, acc starts at 0; the scales' product is
//                                            rounded to fp32, and exact for powers of two
// and acc is rounded to bf16 at the end. `blocks` is 1, or 2 if neighboring blocks of k share their
// scales; the last block of an odd number stands alone. The sum in p is exact in double in any
// order: products are multiples of 2^-18 and 256 of them stay below 2^26. Hardware rounds p in its
// own way, so a kernel equals this bit for bit only if p has few bits (small integers); see
// GemmExact.
std::vector<std::uint16_t> grouped_gemm(const QuantizedRows& rows, const QuantizedWeights& weights,
                                        const Route& route, std::int64_t blocks = 1);

// The product with negligible rounding (fp64), and how far a correct kernel may be from it.
// All fields are [offs[E], weights.rows]; pad rows are 0.
struct GemmExact {
  std::vector<double> value;
  std::vector<double> magnitude;   // the sum of |products|, scales included
  std::vector<double> bound;       // |bf16 result - value| is at most this on Hopper's tensor cores
  std::vector<double> fp32_bound;  // the same if partial sums are added in fp32
};

// Computes the product and its bounds; scaled_dot.cpp and sum_error.cpp derive the bounds.
GemmExact grouped_gemm_exact(const QuantizedRows& rows, const QuantizedWeights& weights,
                             const Route& route, std::int64_t blocks = 1);

}  // namespace moejit::reference
