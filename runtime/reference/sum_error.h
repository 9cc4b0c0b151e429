// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Bounds of the errors of sums whose order is the kernel's own.
namespace moejit::reference {

// Returns the bound of `length` additions in fp32, in any order; `magnitude` is the sum of
// |products|.
double fp32_sum_error(double magnitude, std::int64_t length);

// Returns the bound of a result that is rounded to bf16 once more: this adds 2^-8 of the result, or
// 2^-134 among the subnormals.
double with_bf16_rounding(double bound, double value);

}  // namespace moejit::reference
