// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Bounds of the errors of sums of products; the derivations are in the source.
namespace moejit::reference {

// Returns the bound of one chain of e4m3 products on Hopper's tensor cores, in the order of the
// arrays.
double partial_sum_error(const double* a, const double* b, std::int64_t length);

// Returns a bound of such a chain if the signs of its products are random: at most one sum in 10^8
// exceeds it, and it is far smaller if chains are long.
double likely_sum_error(const double* a, const double* b, std::int64_t length);

// Returns the bound of one chain of bf16 products on Hopper's tensor cores.
double bf16_sum_error(const double* a, const double* b, std::int64_t length);

// Returns the bound of `length` additions in fp32, in any order; `magnitude` is the sum of
// |products|.
double fp32_sum_error(double magnitude, std::int64_t length);

}  // namespace moejit::reference
