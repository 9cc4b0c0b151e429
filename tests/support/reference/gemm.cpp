// SPDX-License-Identifier: Apache-2.0
#include "tests/support/reference/gemm.h"

#include "tests/support/reference/number_formats.h"
#include "tests/support/reference/parallel_for.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace moejit::reference {
namespace {

// One output element: two decoded vectors of `length`, one scale per 128 of each.
struct ScaledDot {
  const double* a = nullptr;
  const double* b = nullptr;
  const float* a_scales = nullptr;
  const float* b_scales = nullptr;
  std::int64_t length = 0;
};

std::array<double, 256> all_e4m3_values() {
  std::array<double, 256> values{};
  for (int code = 0; code < 256; ++code)
    values[code] = decode_e4m3(static_cast<std::uint8_t>(code));
  return values;
}

void decode(const std::uint8_t* codes, std::int64_t count, double* out) {
  static const std::array<double, 256> kValues = all_e4m3_values();
  for (std::int64_t i = 0; i < count; ++i) out[i] = kValues[codes[i]];
}

// Calls body(output index, ScaledDot) for every element of every real row.
template <typename Body>
void for_each_output(const QuantizedRows& rows, const QuantizedWeights& weights, const Route& route,
                     const Body& body) {
  const std::int64_t depth = rows.cols;
  const std::int64_t blocks = block_count(depth);
  for (std::int64_t expert = 0; expert < weights.experts; ++expert) {
    const std::int64_t first = route.offs[expert];
    const std::int64_t count = route.counts[expert];
    if (count == 0) continue;
    std::vector<double> a(count * depth);
    decode(&rows.q[first * depth], count * depth, a.data());
    parallel_for(weights.rows, [&](std::int64_t n) {
      std::vector<double> b(depth);
      decode(&weights.q[(expert * weights.rows + n) * depth], depth, b.data());
      const std::int64_t scale_row = expert * weights.scale_rows() + weights.scale_row_of(n);
      for (std::int64_t i = 0; i < count; ++i) {
        body((first + i) * weights.rows + n,
             ScaledDot{&a[i * depth], b.data(), &rows.scale_inv[(first + i) * blocks],
                       &weights.scale_inv[scale_row * blocks], depth});
      }
    });
  }
}

float dot_in_kernel_order(const ScaledDot& dot) {
  float sum = 0.0F;
  for (std::int64_t block = 0; block < block_count(dot.length); ++block) {
    const std::int64_t end = std::min((block + 1) * kBlock, dot.length);
    double partial = 0.0;
    for (std::int64_t k = block * kBlock; k < end; ++k) partial += dot.a[k] * dot.b[k];
    const float scaled = static_cast<float>(partial) * dot.a_scales[block];
    sum = std::fma(scaled, dot.b_scales[block], sum);
  }
  return sum;
}

// How wrong the tensor core's partial sum of one block may be.
//
// Hopper adds FP8 products 32 at a time: the 32 products and the incoming accumulator are aligned
// to the largest exponent among them and cut off (not rounded) below about 14 significant bits,
// that is below 2^-13 of the largest term. So each of the 33 terms loses less than 2^-13 * L,
// where L is the largest magnitude among them, and the group's error is below 33 * 2^-13 * L. The
// incoming accumulator is the exact prefix up to the error made so far. Adding in fp32, with
// rounding or truncation and in any order, stays well inside: its unit is 2^-23.
//
// The cruder classical form, 4 * 33 * 2^-13 * (sum of |products|) per block, follows from
// L <= sum of |products|. It is not used: for zero-mean data L is about ten times smaller, and a
// bound as large as the result would accept wrong kernels.
double partial_sum_error(const double* a, const double* b, std::int64_t length) {
  constexpr std::int64_t kGroup = 32;
  constexpr double kUnit = 0x1p-13;
  double error = 0.0;
  double prefix = 0.0;
  for (std::int64_t first = 0; first < length; first += kGroup) {
    double largest = std::fabs(prefix) + error;
    for (std::int64_t k = first; k < std::min(first + kGroup, length); ++k) {
      largest = std::max(largest, std::fabs(a[k] * b[k]));
      prefix += a[k] * b[k];
    }
    error += (kGroup + 1) * kUnit * largest;
  }
  return error;
}

struct ExactDot {
  double value = 0.0;
  double magnitude = 0.0;
  double bound = 0.0;
};

// On top of the partial sums' errors, per block: p rounded to fp32 and p * s_row rounded to fp32
// (2 * 2^-24 of the term; nothing where scales are powers of two), the fma's rounding (2^-24 of
// the running sum), and 2^-149 for fp32 underflow. At the end one rounding to bf16: 2^-8 of the
// result, or 2^-134 among the subnormals.
ExactDot dot_exact(const ScaledDot& dot) {
  ExactDot result;
  double error = 0.0;
  for (std::int64_t block = 0; block < block_count(dot.length); ++block) {
    const std::int64_t begin = block * kBlock;
    const std::int64_t end = std::min(begin + kBlock, dot.length);
    const double scale = static_cast<double>(dot.a_scales[block]) * dot.b_scales[block];
    double partial = 0.0;
    double magnitude = 0.0;
    for (std::int64_t k = begin; k < end; ++k) {
      partial += dot.a[k] * dot.b[k];
      magnitude += std::fabs(dot.a[k] * dot.b[k]);
    }
    const double partial_error = partial_sum_error(dot.a + begin, dot.b + begin, end - begin);
    result.value += partial * scale;
    result.magnitude += magnitude * scale;
    error += partial_error * scale + 0x1p-23 * (std::fabs(partial) + partial_error) * scale;
    error += 0x1p-24 * (std::fabs(result.value) + error);
    error += 0x1p-149 * (1.0 + dot.b_scales[block]);
  }
  result.bound = error + 0x1p-8 * (std::fabs(result.value) + error) + 0x1p-134;
  return result;
}

}  // namespace

std::vector<std::uint16_t> grouped_gemm(const QuantizedRows& rows, const QuantizedWeights& weights,
                                        const Route& route) {
  std::vector<std::uint16_t> out(rows.rows * weights.rows, 0);
  for_each_output(rows, weights, route, [&](std::int64_t i, const ScaledDot& dot) {
    out[i] = bf16_from_float(dot_in_kernel_order(dot));
  });
  return out;
}

GemmExact grouped_gemm_exact(const QuantizedRows& rows, const QuantizedWeights& weights,
                             const Route& route) {
  const std::int64_t size = rows.rows * weights.rows;
  GemmExact result{std::vector<double>(size), std::vector<double>(size), std::vector<double>(size)};
  for_each_output(rows, weights, route, [&](std::int64_t i, const ScaledDot& dot) {
    const ExactDot exact = dot_exact(dot);
    result.value[i] = exact.value;
    result.magnitude[i] = exact.magnitude;
    result.bound[i] = exact.bound;
  });
  return result;
}

}  // namespace moejit::reference
