// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/tensor_core.h"

#include <cstdint>

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

}  // namespace moejit::reference
