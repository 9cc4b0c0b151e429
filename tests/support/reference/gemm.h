// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/support/reference/quantize.h"
#include "tests/support/reference/route.h"

#include <cstdint>
#include <vector>

namespace moejit::reference {

// For every real row r of expert e: out[r, n] = sum over k of rows[r, k] * weights[e, n, k], with
// out bf16 [offs[E], weights.rows]. Pad rows are 0. Per block of 128 k, ascending:
//   p   = the sum of the 128 products of fp8 values, exact, then rounded once to fp32
//   acc = fma(p * s_row, s_weight, acc)      in fp32, acc starts at 0
// and acc is rounded to bf16 at the end. The sum in p is exact in double in any order: products
// are multiples of 2^-18 and 128 of them stay below 2^25. Hardware rounds p in its own way, so a
// kernel equals this bit for bit only where p has few bits (small integers); see GemmExact.
std::vector<std::uint16_t> grouped_gemm(const QuantizedRows& rows, const QuantizedWeights& weights,
                                        const Route& route);

// The same product without any rounding worth naming (fp64), and how far a correct kernel may be
// from it. All are [offs[E], weights.rows]; pad rows are 0.
struct GemmExact {
  std::vector<double> value;
  std::vector<double> magnitude;  // the sum of |products|, scales included
  std::vector<double> bound;      // |kernel's bf16 result - value| is at most this
};

// The derivation of `bound` is in the source, at the function of the same subject.
GemmExact grouped_gemm_exact(const QuantizedRows& rows, const QuantizedWeights& weights,
                             const Route& route);

}  // namespace moejit::reference
