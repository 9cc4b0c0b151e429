// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/scaled_dot.h"

#include "runtime/reference/quantize.h"

#include <algorithm>
#include <cmath>

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

}  // namespace moejit::reference
