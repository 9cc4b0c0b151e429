// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/wgmma_arithmetic.h"
#include "runtime/simulator/wgmma_arithmetic/product.h"

namespace moejit::runtime {

MultiplyWgmma baseline_arithmetic(sim::OperandFormat a, sim::OperandFormat b) {
  return arithmetic_of(a, b);
}

}  // namespace moejit::runtime
