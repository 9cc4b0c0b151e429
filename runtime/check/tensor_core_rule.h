// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/target.h"
#include "runtime/reference/tensor_core.h"

namespace moejit::check {

// Returns how the kernels of a target multiply.
inline reference::TensorCoreRule tensor_core_rule(const compiler::Target& target) {
  return {.multiplies_in_f16 = compiler::multiplies_in_f16(target),
          .products = target.mma.products,
          .fraction = target.mma.fraction};
}

}  // namespace moejit::check
