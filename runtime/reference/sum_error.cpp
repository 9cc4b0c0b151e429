// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/sum_error.h"

#include <algorithm>
#include <cmath>

namespace moejit::reference {
namespace {

// Returns the error bound of a sum to which products are added `group` at a time: all terms and the
// sum so far are cut off below `unit` times the largest of them.
double truncated_sum_error(const double* a, const double* b, std::int64_t length,
                           std::int64_t group, double unit) {
  double error = 0.0;
  double prefix = 0.0;
  for (std::int64_t first = 0; first < length; first += group) {
    double largest = std::fabs(prefix) + error;
    for (std::int64_t k = first; k < std::min(first + group, length); ++k) {
      largest = std::max(largest, std::fabs(a[k] * b[k]));
      prefix += a[k] * b[k];
    }
    error += static_cast<double>(group + 1) * unit * largest;
  }
  return error;
}

}  // namespace

// Bounds the error of the tensor core's partial sum.
//
// Hopper adds FP8 products 32 at a time: the 32 products and the incoming accumulator are aligned
// to the largest exponent among them and cut off (not rounded) below about 14 significant bits,
// that is below 2^-13 of the largest term. So each of the 33 terms loses less than 2^-13 * L,
// where L is the largest magnitude among them, and the group's error is below 33 * 2^-13 * L. The
// incoming accumulator is the exact prefix up to the error made so far.
//
// The cruder classical form, c * 2^-13 * (sum of |products|) with c = 33 per group of 32 (132 per
// block of 128, 264 per pair of blocks), follows from L <= sum of |products|. It is not used: for
// zero-mean data L is about ten times smaller, and a bound as large as the result would accept
// wrong kernels.
//
// The 14 bits are what others measured (DeepSeek-V3 technical report, section 3.5.2) and no promise
// of the vendor; tests/kernels/gemm shows on a GPU which share of the bound is used.
double partial_sum_error(const double* a, const double* b, std::int64_t length) {
  return truncated_sum_error(a, b, length, 32, 0x1p-13);
}

// A term loses between 0 and 2^-13 L. The terms' signs are random, so the losses of the 32 products
// add up like random numbers with a variance below (2^-13 L)^2 / 3, and their sum stays within six
// standard deviations. The sum so far keeps its sign from group to group, so its losses, one in a
// group, are all counted in full.
double likely_sum_error(const double* a, const double* b, std::int64_t length) {
  constexpr std::int64_t kGroup = 32;
  double prefix = 0.0;
  double of_prefix = 0.0;
  double variance = 0.0;
  double error = 0.0;
  for (std::int64_t first = 0; first < length; first += kGroup) {
    double largest = std::fabs(prefix) + error;
    for (std::int64_t k = first; k < std::min(first + kGroup, length); ++k) {
      largest = std::max(largest, std::fabs(a[k] * b[k]));
      prefix += a[k] * b[k];
    }
    const double loss = 0x1p-13 * largest;
    of_prefix += loss;
    variance += kGroup * loss * loss / 3.0;
    error = of_prefix + 6.0 * std::sqrt(variance);
  }
  return error;
}

// Bounds the sum as partial_sum_error() does, with 16 bf16 products at a time, which keep the 24
// bits of fp32 or more: each of the 17 terms loses less than 2^-23 of the largest one, and the new
// sum as much once more, which is below 17 times the largest term. (Fasi et al., Numerical behavior
// of NVIDIA tensor cores, 2021, found this for GPUs before Hopper.)
double bf16_sum_error(const double* a, const double* b, std::int64_t length) {
  return truncated_sum_error(a, b, length, 16, 0x1p-22);
}

// Bounds additions in fp32, in any order, with rounding or truncation: each of `length` partial
// sums is below the sum of |products| and loses less than 2^-23 of itself.
double fp32_sum_error(double magnitude, std::int64_t length) {
  return 0x1p-23 * magnitude * static_cast<double>(length);
}

}  // namespace moejit::reference
