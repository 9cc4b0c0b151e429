// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/gemm.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/parallel_for.h"
#include "runtime/reference/quantize.h"
#include "runtime/reference/tensor_core.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace moejit::reference {

float dot_in_kernel_order(const ScaledDot& dot, std::int64_t blocks, ScaleOrder order) {
  float sum = 0.0F;
  for (std::int64_t first = 0; first < dot.length; first += blocks * kBlock) {
    const std::int64_t length = std::min(blocks * kBlock, dot.length - first);
    const float partial =
        tensor_core_chain(dot.a, dot.first_a + first, dot.b, dot.first_b + first, length);
    const float a_scale = dot.a_scales[first / kBlock], b_scale = dot.b_scales[first / kBlock];
    if (order == ScaleOrder::kProductOfScales) {
      const float factor = a_scale * b_scale;
      sum = std::fma(partial, factor, sum);
    } else {
      const float scaled = partial * a_scale;
      sum = std::fma(scaled, b_scale, sum);
    }
  }
  return sum;
}

double dot_in_fp64(const ScaledDot& dot) {
  const float* a = dot.a.values() + dot.first_a;
  const float* b = dot.b.values() + dot.first_b;
  double sum = 0.0;
  for (std::int64_t first = 0; first < dot.length; first += kBlock) {
    double partial = 0.0;
    for (std::int64_t k = first; k < std::min(first + kBlock, dot.length); ++k)
      partial += static_cast<double>(a[k]) * b[k];
    sum += partial *
           (static_cast<double>(dot.a_scales[first / kBlock]) * dot.b_scales[first / kBlock]);
  }
  return sum;
}

namespace {

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
    const TensorCoreNumbers a(std::span(&rows.q[first * depth], count * depth), Fp8Format::kE4m3,
                              rows.rule);
    parallel_for(weights.rows, [&](std::int64_t n) {
      const TensorCoreNumbers b(std::span(&weights.q[(expert * weights.rows + n) * depth], depth),
                                Fp8Format::kE4m3, rows.rule);
      const std::int64_t scale_row = expert * weights.scale_rows() + weights.scale_row_of(n);
      for (std::int64_t i = 0; i < count; ++i) {
        body((first + i) * weights.rows + n,
             ScaledDot{.a = a,
                       .first_a = i * depth,
                       .b = b,
                       .a_scales = &rows.scale_inv[(first + i) * blocks],
                       .b_scales = &weights.scale_inv[scale_row * blocks],
                       .length = depth});
      }
    });
  }
}

}  // namespace

std::vector<float> grouped_gemm_sums(const QuantizedRows& rows, const QuantizedWeights& weights,
                                     const Route& route, std::int64_t blocks) {
  std::vector<float> out(rows.rows * weights.rows, 0.0F);
  for_each_output(rows, weights, route, [&](std::int64_t i, const ScaledDot& dot) {
    out[i] = dot_in_kernel_order(dot, blocks);
  });
  return out;
}

std::vector<std::uint16_t> grouped_gemm(const QuantizedRows& rows, const QuantizedWeights& weights,
                                        const Route& route, std::int64_t blocks) {
  return bf16_from_floats(grouped_gemm_sums(rows, weights, route, blocks));
}

std::vector<double> grouped_gemm_in_fp64(const QuantizedRows& rows, const QuantizedWeights& weights,
                                         const Route& route) {
  std::vector<double> out(rows.rows * weights.rows, 0.0);
  for_each_output(rows, weights, route,
                  [&](std::int64_t i, const ScaledDot& dot) { out[i] = dot_in_fp64(dot); });
  return out;
}

namespace {

// Returns `count` elements from `first` on that are `stride` apart.
std::vector<std::uint16_t> gather(std::span<const std::uint16_t> values, std::int64_t first,
                                  std::int64_t count, std::int64_t stride) {
  std::vector<std::uint16_t> gathered(count);
  for (std::int64_t i = 0; i < count; ++i) gathered[i] = values[first + i * stride];
  return gathered;
}

TensorCoreNumbers numbers(std::span<const std::uint16_t> values, std::int64_t first,
                          std::int64_t count, std::int64_t stride, const TensorCoreRule& rule) {
  return TensorCoreNumbers(gather(values, first, count, stride), rule);
}

}  // namespace

std::vector<float> bf16_grouped_gemm_sums(std::span<const std::uint16_t> rows,
                                          const Bf16Weights& weights, const Route& route,
                                          const TensorCoreRule& rule) {
  const std::int64_t columns = weights.columns, depth = weights.depth;
  std::vector<float> sums(static_cast<std::size_t>(route.rows() * columns), 0.0F);
  for (std::size_t e = 0; e < route.counts.size(); ++e) {
    const std::int64_t first = route.offs[e], count = route.counts[e];
    if (count == 0) continue;
    const TensorCoreNumbers a(rows.subspan(first * depth, count * depth), rule);
    const std::int64_t matrix = static_cast<std::int64_t>(e) * columns * depth;
    parallel_for(columns, [&](std::int64_t n) {
      const TensorCoreNumbers b = weights.is_transposed
                                      ? numbers(weights.values, matrix + n, depth, columns, rule)
                                      : numbers(weights.values, matrix + n * depth, depth, 1, rule);
      for (std::int64_t i = 0; i < count; ++i)
        sums[(first + i) * columns + n] = tensor_core_chain(a, i * depth, b, 0, depth);
    });
  }
  return sums;
}

std::vector<std::uint16_t> bf16_grouped_gemm(std::span<const std::uint16_t> rows,
                                             const Bf16Weights& weights, const Route& route) {
  return bf16_from_floats(bf16_grouped_gemm_sums(rows, weights, route));
}

std::vector<float> bf16_weight_gradient(std::span<const std::uint16_t> a, std::int64_t a_cols,
                                        std::span<const std::uint16_t> b, std::int64_t b_cols,
                                        const Route& route, const TensorCoreRule& rule) {
  std::vector<float> sums(route.counts.size() * a_cols * b_cols, 0.0F);
  for (std::size_t e = 0; e < route.counts.size(); ++e) {
    const std::int64_t first = route.offs[e], count = route.counts[e];
    std::vector<TensorCoreNumbers> b_columns;
    for (std::int64_t j = 0; j < b_cols; ++j)
      b_columns.push_back(numbers(b, first * b_cols + j, count, b_cols, rule));
    parallel_for(a_cols, [&](std::int64_t i) {
      const TensorCoreNumbers a_column = numbers(a, first * a_cols + i, count, a_cols, rule);
      for (std::int64_t j = 0; j < b_cols; ++j)
        sums[(static_cast<std::int64_t>(e) * a_cols + i) * b_cols + j] =
            tensor_core_chain(a_column, 0, b_columns[j], 0, count);
    });
  }
  return sums;
}

std::vector<float> weight_gradient(const QuantizedRows& a, const QuantizedRows& b,
                                   const Route& route, ScaleOrder order) {
  const TensorCoreNumbers of_a(a.q, Fp8Format::kE4m3, a.rule);
  const TensorCoreNumbers of_b(b.q, Fp8Format::kE4m3, a.rule);
  const std::int64_t blocks = block_count(a.cols);
  std::vector<float> out(route.counts.size() * a.rows * b.rows, 0.0F);
  for (std::size_t e = 0; e < route.counts.size(); ++e) {
    const std::int64_t first = route.offs[e];
    if (route.counts[e] == 0) continue;
    parallel_for(a.rows, [&](std::int64_t i) {
      for (std::int64_t j = 0; j < b.rows; ++j) {
        out[(static_cast<std::int64_t>(e) * a.rows + i) * b.rows + j] =
            dot_in_kernel_order({.a = of_a,
                                 .first_a = i * a.cols + first,
                                 .b = of_b,
                                 .first_b = j * b.cols + first,
                                 .a_scales = &a.scale_inv[i * blocks + first / kBlock],
                                 .b_scales = &b.scale_inv[j * blocks + first / kBlock],
                                 .length = route.counts[e]},
                                1, order);
      }
    });
  }
  return out;
}

}  // namespace moejit::reference
