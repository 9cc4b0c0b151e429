// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/wgmma_arithmetic.h"
#include "runtime/simulator/wgmma_arithmetic/product.h"

namespace moejit::runtime {

MultiplyWgmma baseline_arithmetic(sim::OperandFormat a, sim::OperandFormat b) {
  return arithmetic_of(a, b);
}

VectorLevel vector_level() {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  if (has_avx2) return VectorLevel::kAvx2;
#endif
  return VectorLevel::kBaseline;
}

MultiplyWgmma wgmma_arithmetic(sim::OperandFormat a, sim::OperandFormat b, VectorLevel level) {
  return level == VectorLevel::kAvx2 ? avx2_arithmetic(a, b) : baseline_arithmetic(a, b);
}

}  // namespace moejit::runtime
