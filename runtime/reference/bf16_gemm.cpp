// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/bf16_gemm.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/parallel_for.h"
#include "runtime/reference/tensor_core.h"

namespace moejit::reference {
namespace {

// Returns `count` elements from `first` on that are `stride` apart.
std::vector<std::uint16_t> gather(std::span<const std::uint16_t> values, std::int64_t first,
                                  std::int64_t count, std::int64_t stride) {
  std::vector<std::uint16_t> gathered(count);
  for (std::int64_t i = 0; i < count; ++i) gathered[i] = values[first + i * stride];
  return gathered;
}

TensorCoreNumbers numbers(std::span<const std::uint16_t> values, std::int64_t first,
                          std::int64_t count, std::int64_t stride) {
  return TensorCoreNumbers(gather(values, first, count, stride));
}

}  // namespace

std::vector<float> bf16_grouped_gemm_sums(std::span<const std::uint16_t> rows,
                                          const Bf16Weights& weights, const Route& route) {
  const std::int64_t columns = weights.columns, depth = weights.depth;
  std::vector<float> sums(static_cast<std::size_t>(route.rows() * columns), 0.0F);
  for (std::size_t e = 0; e < route.counts.size(); ++e) {
    const std::int64_t first = route.offs[e], count = route.counts[e];
    if (count == 0) continue;
    const TensorCoreNumbers a(rows.subspan(first * depth, count * depth));
    const std::int64_t matrix = static_cast<std::int64_t>(e) * columns * depth;
    parallel_for(columns, [&](std::int64_t n) {
      const TensorCoreNumbers b = weights.is_transposed
                                      ? numbers(weights.values, matrix + n, depth, columns)
                                      : numbers(weights.values, matrix + n * depth, depth, 1);
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
                                        const Route& route) {
  std::vector<float> sums(route.counts.size() * a_cols * b_cols, 0.0F);
  for (std::size_t e = 0; e < route.counts.size(); ++e) {
    const std::int64_t first = route.offs[e], count = route.counts[e];
    std::vector<TensorCoreNumbers> b_columns;
    for (std::int64_t j = 0; j < b_cols; ++j)
      b_columns.push_back(numbers(b, first * b_cols + j, count, b_cols));
    parallel_for(a_cols, [&](std::int64_t i) {
      const TensorCoreNumbers a_column = numbers(a, first * a_cols + i, count, a_cols);
      for (std::int64_t j = 0; j < b_cols; ++j)
        sums[(static_cast<std::int64_t>(e) * a_cols + i) * b_cols + j] =
            tensor_core_chain(a_column, 0, b_columns[j], 0, count);
    });
  }
  return sums;
}

}  // namespace moejit::reference
