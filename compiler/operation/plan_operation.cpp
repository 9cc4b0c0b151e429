// SPDX-License-Identifier: Apache-2.0
#include "compiler/operation/operation_parts.h"
#include "compiler/planner/complete_kernel.h"
#include "compiler/planner/make_calls.h"
#include "compiler/planner/plan_workspace.h"
#include "compiler/planner/tuned_candidate.h"

#include <fmt/core.h>

namespace moejit::compiler {
namespace {

void complete_tensor(TensorPlan& tensor, const KernelPlan& kernel) {
  tensor.role = writes(kernel, tensor.name) ? TensorRole::kOutput : TensorRole::kInput;
  tensor.bytes = size_bytes(tensor.dtype);
  for (const Dim& dim : tensor.shape) tensor.bytes *= dim.value;
}

}  // namespace

Result<Plan> plan_operation(const OperationDescription& operation, const Target& target,
                            const PlanOptions& options) {
  const PlanContext context{.target = target, .options = options};
  MOEJIT_TRY_ASSIGN(
      OperationParts parts,
      std::visit([&](const auto& kind) { return parts_of(kind, context); }, operation));
  const std::string_view name = operation_name(operation);
  parts.kernel.operation = name;
  explain_tuning(parts.kernel, target, options.tuning);
  Plan plan;  // filled field by field, as plan_layer() does
  plan.subject = fmt::format("the operation {}", name);
  plan.target = target;
  if (options.tuning != nullptr) plan.tuned_for = options.tuning->gpu();
  plan.bounds = parts.kernel.bounds;
  plan.tensors = std::move(parts.tensors);
  plan.operation = operation;
  for (TensorPlan& tensor : plan.tensors) complete_tensor(tensor, parts.kernel);
  plan.kernels.push_back(std::move(parts.kernel));
  plan.workspace_bytes = plan_workspace(plan, {}, {});
  make_operation_calls(plan);
  return plan;
}

}  // namespace moejit::compiler
