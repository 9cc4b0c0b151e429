// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/weight_gradient.h"

#include "runtime/reference/parallel_for.h"

namespace moejit::reference {

std::vector<float> weight_gradient(const QuantizedRows& a, const QuantizedRows& b,
                                   const Route& route, ScaleOrder order) {
  const TensorCoreNumbers of_a(a.q, Fp8Format::kE4m3), of_b(b.q, Fp8Format::kE4m3);
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
