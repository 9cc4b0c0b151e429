// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/quantize.h"
#include "runtime/reference/route.h"

#include <cstdint>
#include <vector>

namespace moejit::reference {

// Computes out[e, i, j] = sum over the columns c of group e of a[i, c] * b[j, c], fp32 [E, a.rows,
// b.rows]; a and b hold tokens as columns, whose groups start at multiples of 128. For each 128
// columns of a group, ascending, the exact sum p of the products is rounded once to fp32, then
// added by fma(p, s_a * s_b, sum). Groups without columns are zeros.
std::vector<float> weight_gradient(const QuantizedRows& a, const QuantizedRows& b,
                                   const Route& route);

// The gradient with negligible rounding, and how far a correct fp32 result may be from it.
struct WeightGradientExact {
  std::vector<double> value;
  std::vector<double> bound;       // on Hopper's tensor cores
  std::vector<double> fp32_bound;  // if partial sums are added in fp32
};
WeightGradientExact weight_gradient_exact(const QuantizedRows& a, const QuantizedRows& b,
                                          const Route& route);

}  // namespace moejit::reference
