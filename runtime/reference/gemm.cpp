// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/gemm.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/parallel_for.h"
#include "runtime/reference/scaled_dot.h"

namespace moejit::reference {
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

}  // namespace

std::vector<std::uint16_t> grouped_gemm(const QuantizedRows& rows, const QuantizedWeights& weights,
                                        const Route& route, std::int64_t blocks) {
  std::vector<std::uint16_t> out(rows.rows * weights.rows, 0);
  for_each_output(rows, weights, route, [&](std::int64_t i, const ScaledDot& dot) {
    out[i] = bf16_from_float(dot_in_kernel_order(dot, blocks));
  });
  return out;
}

GemmExact grouped_gemm_exact(const QuantizedRows& rows, const QuantizedWeights& weights,
                             const Route& route, std::int64_t blocks) {
  const std::int64_t size = rows.rows * weights.rows;
  GemmExact result{std::vector<double>(size), std::vector<double>(size), std::vector<double>(size),
                   std::vector<double>(size)};
  for_each_output(rows, weights, route, [&](std::int64_t i, const ScaledDot& dot) {
    const ExactDot exact = dot_exact(dot, blocks);
    result.value[i] = exact.value;
    result.magnitude[i] = exact.magnitude;
    result.bound[i] = with_bf16_rounding(exact.bound, exact.value);
    result.fp32_bound[i] = with_bf16_rounding(exact.fp32_bound, exact.value);
  });
  return result;
}

}  // namespace moejit::reference
