// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/end_scaled_gemm.h"

#include "runtime/reference/parallel_for.h"
#include "runtime/reference/tensor_core.h"

#include <algorithm>

namespace moejit::reference {
namespace {

float sum_of_chains(const TensorCoreNumbers& a, std::int64_t first_a, const TensorCoreNumbers& b,
                    std::int64_t first_b, std::int64_t depth, std::int64_t chain) {
  float sum = 0.0F;
  for (std::int64_t first = 0; first < depth; first += chain)
    sum +=
        tensor_core_chain(a, first_a + first, b, first_b + first, std::min(chain, depth - first));
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

std::vector<float> end_scaled_gemm_sums(const EndScaledOperands& operands, const Route& route,
                                        std::int64_t chain) {
  const std::int64_t columns = operands.columns;
  const std::int64_t depth = operands.depth;
  const auto format = [&](Fp8Format fp8) {
    return operands.is_bf16 ? OperandFormat::kBf16 : operand_format(fp8, operands.rule);
  };
  const TensorCoreNumbers a(operands.a, format(operands.a_format), operands.rule);
  const TensorCoreNumbers b(operands.b, format(operands.b_format), operands.rule);
  std::vector<float> result(static_cast<std::size_t>(operands.rows * columns));
  for (std::int64_t group = 0; group < std::ssize(route.counts); ++group) {
    const std::int64_t first = route.offs[group];
    parallel_for(columns, [&](std::int64_t n) {
      const std::int64_t column = group * columns + n;
      for (std::int64_t row = first; row < first + route.counts[group]; ++row) {
        const float sum = sum_of_chains(a, row * depth, b, column * depth, depth, chain);
        result[row * columns + n] =
            scaled(sum, operands.a_scale[row], operands.b_scale[column], operands.order);
      }
    });
  }
  return result;
}

std::vector<std::uint16_t> end_scaled_gemm(const EndScaledOperands& operands, const Route& route,
                                           std::int64_t chain) {
  return bf16_from_floats(end_scaled_gemm_sums(operands, route, chain));
}

std::vector<float> end_scaled_weight_gradient(const EndScaledColumns& a, const EndScaledColumns& b,
                                              const Route& route, ScaleOrder order,
                                              std::int64_t chain) {
  const TensorCoreNumbers of_a(a.values, operand_format(a.format));
  const TensorCoreNumbers of_b(b.values, operand_format(b.format));
  std::vector<float> result(route.counts.size() * static_cast<std::size_t>(a.rows * b.rows));
  for (std::int64_t e = 0; e < std::ssize(route.counts); ++e) {
    if (route.counts[e] == 0) continue;
    parallel_for(a.rows, [&](std::int64_t i) {
      for (std::int64_t j = 0; j < b.rows; ++j) {
        const float sum = sum_of_chains(of_a, i * a.columns + route.offs[e], of_b,
                                        j * b.columns + route.offs[e], route.counts[e], chain);
        result[(e * a.rows + i) * b.rows + j] =
            scaled(sum, a.scale[e * a.rows + i], b.scale[e * b.rows + j], order);
      }
    });
  }
  return result;
}

}  // namespace moejit::reference
