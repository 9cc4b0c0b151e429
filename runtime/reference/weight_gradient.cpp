// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/weight_gradient.h"

#include "runtime/reference/parallel_for.h"
#include "runtime/reference/scaled_dot.h"

namespace moejit::reference {
namespace {

// Calls body(output index, ScaledDot) for every element of every group with columns.
template <typename Body>
void for_each_output(const QuantizedRows& a, const QuantizedRows& b, const Route& route,
                     const Body& body) {
  std::vector<double> a_values(a.q.size());
  std::vector<double> b_values(b.q.size());
  decode(a.q.data(), static_cast<std::int64_t>(a.q.size()), a_values.data());
  decode(b.q.data(), static_cast<std::int64_t>(b.q.size()), b_values.data());
  const std::int64_t blocks = block_count(a.cols);
  for (std::size_t e = 0; e < route.counts.size(); ++e) {
    const std::int64_t first = route.offs[e];
    if (route.counts[e] == 0) continue;
    parallel_for(a.rows, [&](std::int64_t i) {
      for (std::int64_t j = 0; j < b.rows; ++j) {
        body((static_cast<std::int64_t>(e) * a.rows + i) * b.rows + j,
             ScaledDot{&a_values[i * a.cols + first], &b_values[j * b.cols + first],
                       &a.scale_inv[i * blocks + first / kBlock],
                       &b.scale_inv[j * blocks + first / kBlock], route.counts[e]});
      }
    });
  }
}

}  // namespace

std::vector<float> weight_gradient(const QuantizedRows& a, const QuantizedRows& b,
                                   const Route& route) {
  std::vector<float> out(route.counts.size() * a.rows * b.rows, 0.0F);
  for_each_output(a, b, route, [&](std::int64_t i, const ScaledDot& dot) {
    out[i] = dot_in_kernel_order(dot, 1);
  });
  return out;
}

WeightGradientExact weight_gradient_exact(const QuantizedRows& a, const QuantizedRows& b,
                                          const Route& route) {
  const std::size_t size = route.counts.size() * a.rows * b.rows;
  WeightGradientExact result{std::vector<double>(size), std::vector<double>(size),
                             std::vector<double>(size)};
  for_each_output(a, b, route, [&](std::int64_t i, const ScaledDot& dot) {
    const ExactDot exact = dot_exact(dot, 1);
    result.value[i] = exact.value;
    result.bound[i] = exact.bound;
    result.fp32_bound[i] = exact.fp32_bound;
  });
  return result;
}

}  // namespace moejit::reference
