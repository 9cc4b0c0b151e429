// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations/arguments.h"

#include <fmt/core.h>

namespace moejit::compiler {

void add_argument(KernelPlan& kernel, std::string role, const Port& port) {
  const std::string scales_role = fmt::format("{}_scale_inv", role);
  kernel.arguments.push_back({std::move(role), port.tensor});
  if (!port.scale_inv.empty()) kernel.arguments.push_back({scales_role, port.scale_inv});
}

void add_arguments(KernelPlan& kernel, const Operation& operation,
                   std::initializer_list<std::string_view> roles) {
  for (const std::string_view role : roles) {
    const Port* port = find_read(operation, role);
    if (port == nullptr) port = find_write(operation, role);
    if (port != nullptr) add_argument(kernel, std::string(role), *port);
  }
}

}  // namespace moejit::compiler
