// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// How far sums of products may be from exact ones; the derivations are in the source.
namespace moejit::reference {

// Of one chain of e4m3 products on Hopper's tensor cores, in the order of the arrays.
double partial_sum_error(const double* a, const double* b, std::int64_t length);

// The same for products of either sign at random: not passed by more than one sum in 10^8, and far
// smaller where chains are long.
double likely_sum_error(const double* a, const double* b, std::int64_t length);

// As the first of bf16 products.
double bf16_sum_error(const double* a, const double* b, std::int64_t length);

// Of `length` additions in fp32, in any order, where the sum of |products| is `magnitude`.
double fp32_sum_error(double magnitude, std::int64_t length);

}  // namespace moejit::reference
