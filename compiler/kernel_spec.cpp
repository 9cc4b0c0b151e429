// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernel_spec.h"

namespace moejit::compiler {

std::string to_string(const KernelSpec& spec) {
  return std::visit([](const auto& kind) { return to_string(kind); }, spec);
}

}  // namespace moejit::compiler
