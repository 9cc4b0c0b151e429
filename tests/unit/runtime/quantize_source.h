// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compiler.h"

#include <cstdint>
#include <string_view>

namespace moejit::runtime {

// Returns the source of a kernel for that target that quantizes rows of so many columns.
inline compiler::KernelSource quantize_source(std::string_view target, int32_t columns = 128) {
  const compiler::KernelPlan kernel{.operation = "quantize",
                                    .spec = compiler::RowChainSpec{.columns = columns}};
  return emit_kernel(kernel, compiler::parse_target(target).value()).value();
}

}  // namespace moejit::runtime
