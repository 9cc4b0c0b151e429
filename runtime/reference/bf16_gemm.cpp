// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/bf16_gemm.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/parallel_for.h"
#include "runtime/reference/scaled_dot.h"
#include "runtime/reference/sum_error.h"

#include <algorithm>
#include <cmath>

namespace moejit::reference {
namespace {

struct Dot {
  double value = 0.0;
  double magnitude = 0.0;
  double error = 0.0;       // of one chain on the tensor cores
  double fp32_error = 0.0;  // of any order of additions in fp32
};

Dot dot_of(const double* a, const double* b, std::int64_t length) {
  Dot dot;
  for (std::int64_t k = 0; k < length; ++k) {
    dot.value += a[k] * b[k];
    dot.magnitude += std::fabs(a[k] * b[k]);
  }
  // Each addition among the subnormals loses up to half of the smallest subnormal.
  const double subnormal = 0x1p-149 * static_cast<double>(length);
  dot.error = bf16_sum_error(a, b, length) + subnormal;
  dot.fp32_error = fp32_sum_error(dot.magnitude, length) + subnormal;
  return dot;
}

// Returns `count` elements from `first` on that are `stride` apart.
std::vector<double> gather(std::span<const std::uint16_t> values, std::int64_t first,
                           std::int64_t count, std::int64_t stride) {
  std::vector<double> gathered(count);
  for (std::int64_t i = 0; i < count; ++i)
    gathered[i] = float_from_bf16(values[first + i * stride]);
  return gathered;
}

}  // namespace

GemmExact bf16_grouped_gemm_exact(std::span<const std::uint16_t> rows, const Bf16Weights& weights,
                                  const Route& route) {
  const std::int64_t columns = weights.columns, depth = weights.depth;
  const auto size = static_cast<std::size_t>(route.rows() * columns);
  GemmExact result{std::vector<double>(size), std::vector<double>(size), std::vector<double>(size),
                   std::vector<double>(size)};
  for (std::size_t e = 0; e < route.counts.size(); ++e) {
    const std::int64_t first = route.offs[e], count = route.counts[e];
    const std::vector<double> a = gather(rows, first * depth, count * depth, 1);
    const std::int64_t matrix = static_cast<std::int64_t>(e) * columns * depth;
    parallel_for(count > 0 ? columns : 0, [&](std::int64_t n) {
      const std::vector<double> b = weights.is_transposed
                                        ? gather(weights.values, matrix + n, depth, columns)
                                        : gather(weights.values, matrix + n * depth, depth, 1);
      for (std::int64_t i = 0; i < count; ++i) {
        const Dot dot = dot_of(&a[i * depth], b.data(), depth);
        const std::int64_t at = (first + i) * columns + n;
        result.value[at] = dot.value;
        result.magnitude[at] = dot.magnitude;
        result.bound[at] = with_bf16_rounding(dot.error, dot.value);
        result.fp32_bound[at] = with_bf16_rounding(dot.fp32_error, dot.value);
      }
    });
  }
  return result;
}

WeightGradientExact bf16_weight_gradient_exact(std::span<const std::uint16_t> a,
                                               std::int64_t a_cols,
                                               std::span<const std::uint16_t> b,
                                               std::int64_t b_cols, const Route& route) {
  const std::size_t size = route.counts.size() * a_cols * b_cols;
  WeightGradientExact result{std::vector<double>(size), std::vector<double>(size),
                             std::vector<double>(size)};
  for (std::size_t e = 0; e < route.counts.size(); ++e) {
    const std::int64_t first = route.offs[e], count = route.counts[e];
    std::vector<std::vector<double>> b_columns;
    for (std::int64_t j = 0; j < b_cols; ++j)
      b_columns.push_back(gather(b, first * b_cols + j, count, b_cols));
    parallel_for(a_cols, [&](std::int64_t i) {
      const std::vector<double> a_column = gather(a, first * a_cols + i, count, a_cols);
      for (std::int64_t j = 0; j < b_cols; ++j) {
        const Dot dot = dot_of(a_column.data(), b_columns[j].data(), count);
        const std::int64_t at = (static_cast<std::int64_t>(e) * a_cols + i) * b_cols + j;
        result.value[at] = dot.value;
        result.bound[at] = dot.error;
        result.fp32_bound[at] = dot.fp32_error;
      }
    });
  }
  return result;
}

}  // namespace moejit::reference
