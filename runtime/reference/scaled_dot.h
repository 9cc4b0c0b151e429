// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/quantize.h"

#include <cstdint>

namespace moejit::reference {

// One output element: two decoded vectors of `length`, one scale per 128 of each.
struct ScaledDot {
  const double* a = nullptr;
  const double* b = nullptr;
  const float* a_scales = nullptr;
  const float* b_scales = nullptr;
  std::int64_t length = 0;
};

// Decodes `count` e4m3 codes into `out`.
void decode(const std::uint8_t* codes, std::int64_t count, double* out);

// Returns what the kernels compute, in their order: for each 128 * `blocks` elements the sum p of
// the products, rounded once to fp32, then fma(p, a_scale * b_scale, sum).
float dot_in_kernel_order(const ScaledDot& dot, std::int64_t blocks);

// The dot product with negligible rounding, and how far a correct fp32 result may be from it.
struct ExactDot {
  double value = 0.0;
  double magnitude = 0.0;   // the sum of |products|, scales included
  double bound = 0.0;       // on Hopper's tensor cores
  double fp32_bound = 0.0;  // if partial sums are added in fp32
};
ExactDot dot_exact(const ScaledDot& dot, std::int64_t blocks);

// Returns the bound of a result that is rounded to bf16 once more: this adds 2^-8 of the result, or
// 2^-134 among the subnormals.
double with_bf16_rounding(double bound, double value);

}  // namespace moejit::reference
