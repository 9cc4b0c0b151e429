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
void fit(RouteDispatchPermuteSpec& spec, const Operation& operation) {
  spec.dispatch.tells_tokens = find_write(operation, "dispatch.row_tokens") != nullptr;
  spec.dispatch.keeps_rows = find_write(operation, "dispatch.kept_output") != nullptr;
  spec.has_colwise_offs = find_write(operation, "route.colwise_offs") != nullptr;
}

// Returns the role of the scales of a port's rows.
std::string scales_role(const std::string& role) {
  constexpr std::string_view kKept = "kept_output";
  if (!role.ends_with(kKept)) return role + "_scale_inv";
  return role.substr(0, role.size() - kKept.size()) + "kept_scale_inv";
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
      // The maker of a backward call's kernel adds the comparison of T.
      if (port.role == "saved_tokens" && operation.phase == Phase::kBackward) continue;
      kernel.arguments.push_back({port.role, port.tensor});
      if (!port.scale_inv.empty())
        kernel.arguments.push_back({scales_role(port.role), port.scale_inv});
    }
  return kernel;
}

}  // namespace moejit::compiler
