// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations/exchange.h"

#include "compiler/planner/operations/arguments.h"

namespace moejit::compiler {
namespace {

// Leaves out of a spec what the operation does not write.
template <typename Spec>
void fit(Spec&, const Operation&) {}
void fit(DispatchPermuteSpec& spec, const Operation& operation) {
  spec.tells_tokens = find_write(operation, "row_tokens") != nullptr;
  spec.keeps_rows = find_write(operation, "kept_output") != nullptr;
}

}  // namespace

KernelPlan make_kernel(const Operation& operation, const ExchangeKernel& exchange,
                       const KernelContext&) {
  KernelPlan kernel{.reasons = exchange.reasons};
  std::visit(
      [&](auto spec) {
        fit(spec, operation);
        kernel.spec = spec;
      },
      exchange.spec);
  for (const auto* const ports : {&operation.reads, &operation.writes})
    for (const Port& port : *ports) {
      // Whoever makes a kernel of a backward call adds what compares T.
      if (port.role == "saved_tokens" && operation.phase == Phase::kBackward) continue;
      if (port.role != "kept_output") {
        add_argument(kernel, port.role, port);
        continue;
      }
      kernel.arguments.push_back({port.role, port.tensor});
      if (!port.scale_inv.empty()) kernel.arguments.push_back({"kept_scale_inv", port.scale_inv});
    }
  return kernel;
}

}  // namespace moejit::compiler
