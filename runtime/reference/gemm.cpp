// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/gemm.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/parallel_for.h"
#include "runtime/reference/scaled_dot.h"

#include <span>

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
    const TensorCoreNumbers a(std::span(&rows.q[first * depth], count * depth), Fp8Format::kE4m3);
    parallel_for(weights.rows, [&](std::int64_t n) {
      const TensorCoreNumbers b(std::span(&weights.q[(expert * weights.rows + n) * depth], depth),
                                Fp8Format::kE4m3);
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

}  // namespace moejit::reference
