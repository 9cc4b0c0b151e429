// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/quantize.h"
#include "runtime/reference/route.h"
#include "runtime/reference/scaled_dot.h"

#include <cstdint>
#include <vector>

namespace moejit::reference {

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
