// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operation.h"

#include "compiler/planner/candidates.h"

#include <algorithm>
#include <cassert>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

const Port* find(const std::vector<Port>& ports, std::string_view role) {
  const auto found = std::ranges::find(ports, role, &Port::role);
  return found == ports.end() ? nullptr : &*found;
}

}  // namespace

OperationKind::OperationKind() = default;
OperationKind::OperationKind(const OperationKind& other) = default;
OperationKind::OperationKind(OperationKind&& other) noexcept = default;
OperationKind& OperationKind::operator=(const OperationKind& other) = default;
OperationKind& OperationKind::operator=(OperationKind&& other) noexcept = default;
OperationKind::~OperationKind() = default;

const Port* find_read(const Operation& operation, std::string_view role) {
  return find(operation.reads, role);
}

const Port* find_write(const Operation& operation, std::string_view role) {
  return find(operation.writes, role);
}

const Port& read_of(const Operation& operation, std::string_view role) {
  const Port* const port = find_read(operation, role);
  assert(port != nullptr);
  return *port;
}

const Port& write_of(const Operation& operation, std::string_view role) {
  const Port* const port = find_write(operation, role);
  assert(port != nullptr);
  return *port;
}

bool reads(const Operation& operation, std::string_view tensor) {
  return std::ranges::count(operation.reads, tensor, &Port::tensor) > 0;
}

bool defines(const Operation& operation, std::string_view tensor) {
  return std::ranges::any_of(operation.writes, [&](const Port& port) {
    return port.tensor == tensor && !port.is_repeated;
  });
}

bool is_gemm(const Operation& operation) {
  return kind_of<GroupedGemm>(operation) != nullptr ||
         kind_of<GroupedGemmActivation>(operation) != nullptr ||
         kind_of<Wgrad>(operation) != nullptr;
}

void narrow(Operation& operation) {
  // The kind is copied, since narrow() may replace it. Most kinds have no narrow() of their own.
  std::visit(
      [&](auto kind) {
        if constexpr (requires { narrow(operation, kind); }) narrow(operation, kind);
      },
      OperationKind(operation.kind));
}

KernelPlan make_kernel(const Operation& operation, const KernelContext& context) {
  KernelPlan kernel = std::visit(
      [&]<typename Kind>(const Kind& kind) -> KernelPlan {
        if constexpr (std::is_same_v<Kind, Collective>) {
          assert(false);
          return {};
        } else {
          return make_kernel(operation, kind, context);
        }
      },
      operation.kind);
  tune_kernel(kernel, context.bounds, context.target, context.options);
  for (const std::string_view role : {"saved_tokens", "tokens_status", "elapsed"})
    if (operation.phase == Phase::kBackward || role == "elapsed")
      add_arguments(kernel, operation, {role});
  kernel.operation = operation.name;
  kernel.phase = to_string(operation.phase);
  if (operation.half) kernel.half = to_string(*operation.half);
  if (operation.dispatch_call) kernel.dispatch_call = to_string(*operation.dispatch_call);
  if (operation.gradient_mode) kernel.gradient_mode = to_string(*operation.gradient_mode);
  return kernel;
}

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
