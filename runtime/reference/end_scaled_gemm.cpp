// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/end_scaled_gemm.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/parallel_for.h"
#include "runtime/reference/sum_error.h"

#include <algorithm>
#include <cmath>

namespace moejit::reference {
namespace {

struct Dot {
  double value = 0.0;
  double magnitude = 0.0;
  double error = 0.0;  // of the sum on the tensor cores
};

// The sum of a chain is fp32 itself, and adding it to the sum before rounds to 2^-24 of the result.
Dot e4m3_dot(const double* a, const double* b, std::int64_t depth, std::int64_t chain) {
  Dot dot;
  for (std::int64_t first = 0; first < depth; first += chain) {
    const std::int64_t length = std::min(chain, depth - first);
    double partial = 0.0;
    for (std::int64_t k = first; k < first + length; ++k) {
      partial += a[k] * b[k];
      dot.magnitude += std::fabs(a[k] * b[k]);
    }
    const double partial_error = std::min(partial_sum_error(a + first, b + first, length),
                                          likely_sum_error(a + first, b + first, length));
    dot.value += partial;
    dot.error += partial_error + 0x1p-24 * (std::fabs(partial) + partial_error);
    dot.error += 0x1p-24 * (std::fabs(dot.value) + dot.error);
  }
  return dot;
}

Dot bf16_dot(const double* a, const double* b, std::int64_t depth) {
  Dot dot;
  for (std::int64_t k = 0; k < depth; ++k) {
    dot.value += a[k] * b[k];
    dot.magnitude += std::fabs(a[k] * b[k]);
  }
  dot.error = bf16_sum_error(a, b, depth);
  return dot;
}

// Two products are rounded, in either order (2^-24 each), or lost if they underflow: the second is
// the result; the first is multiplied with the sum or with b's scale afterwards. Then comes the
// rounding to bf16, 2^-8 of the result or 2^-134 among subnormals.
double bound_of(double value, double error, double scale, double b_scale) {
  const double scaled = (std::fabs(value) + error) * scale;
  const double underflow = 0x1p-149 * (1.0 + std::max(std::fabs(value), std::fabs(b_scale)));
  const double before = error * scale + 0x1p-23 * scaled + underflow;
  return before + 0x1p-8 * (std::fabs(value) * scale + before) + 0x1p-134;
}

float fp32_sum(const float* a, const float* b, std::int64_t depth, std::int64_t chain) {
  float sum = 0.0F;
  for (std::int64_t first = 0; first < depth; first += chain) {
    double partial = 0.0;
    for (std::int64_t k = first; k < std::min(first + chain, depth); ++k)
      partial += static_cast<double>(a[k]) * b[k];
    sum += static_cast<float>(partial);
  }
  return sum;
}

float scaled(float sum, float a_scale, float b_scale, ScaleOrder order) {
  if (order == ScaleOrder::kRowThenColumn) {
    const float of_row = sum * a_scale;
    return of_row * b_scale;
  }
  const float factor = a_scale * b_scale;
  return sum * factor;
}

}  // namespace

GemmExact end_scaled_gemm_exact(const EndScaledOperands& operands, const Route& route,
                                std::int64_t e4m3_chain) {
  const std::int64_t columns = operands.columns;
  const std::int64_t depth = operands.depth;
  const auto size = static_cast<std::size_t>(operands.rows * columns);
  GemmExact result{std::vector<double>(size), std::vector<double>(size), std::vector<double>(size),
                   std::vector<double>(size)};
  const auto group_count = static_cast<std::int64_t>(route.counts.size());
  for (std::int64_t group = 0; group < group_count; ++group) {
    const std::int64_t first = route.offs[group];
    const std::int64_t count = route.counts[group];
    if (count == 0) continue;
    const std::vector<double> a(operands.a.begin() + first * depth,
                                operands.a.begin() + (first + count) * depth);
    parallel_for(columns, [&](std::int64_t n) {
      const std::int64_t column = group * columns + n;
      const std::vector<double> b(operands.b.begin() + column * depth,
                                  operands.b.begin() + (column + 1) * depth);
      for (std::int64_t i = 0; i < count; ++i) {
        const Dot dot = operands.is_bf16 ? bf16_dot(&a[i * depth], b.data(), depth)
                                         : e4m3_dot(&a[i * depth], b.data(), depth, e4m3_chain);
        const double scale =
            static_cast<double>(operands.a_scale[first + i]) * operands.b_scale[column];
        const std::int64_t at = (first + i) * columns + n;
        result.value[at] = dot.value * scale;
        result.magnitude[at] = dot.magnitude * std::fabs(scale);
        result.bound[at] =
            bound_of(dot.value, dot.error, std::fabs(scale), operands.b_scale[column]);
        result.fp32_bound[at] = bound_of(dot.value, fp32_sum_error(dot.magnitude, depth),
                                         std::fabs(scale), operands.b_scale[column]);
      }
    });
  }
  return result;
}

std::vector<std::uint16_t> end_scaled_gemm(const EndScaledOperands& operands, const Route& route,
                                           std::int64_t chain) {
  const std::int64_t columns = operands.columns;
  const std::int64_t depth = operands.depth;
  std::vector<std::uint16_t> result(static_cast<std::size_t>(operands.rows * columns));
  for (std::int64_t group = 0; group < std::ssize(route.counts); ++group) {
    const std::int64_t first = route.offs[group];
    parallel_for(columns, [&](std::int64_t n) {
      const std::int64_t column = group * columns + n;
      for (std::int64_t row = first; row < first + route.counts[group]; ++row) {
        const float sum =
            fp32_sum(&operands.a[row * depth], &operands.b[column * depth], depth, chain);
        result[row * columns + n] = bf16_from_float(
            scaled(sum, operands.a_scale[row], operands.b_scale[column], operands.order));
      }
    });
  }
  return result;
}

}  // namespace moejit::reference
