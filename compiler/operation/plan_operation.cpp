// SPDX-License-Identifier: Apache-2.0
#include "compiler/operation/operation_draft.h"
#include "compiler/planner/candidates.h"
#include "compiler/planner/planner_steps.h"

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
  MOEJIT_TRY_ASSIGN(OperationParts parts, read_operation(to_json(operation), "operation"));
  MOEJIT_TRY_ASSIGN(KernelPlan kernel, parts.make_kernel(target, options));
  kernel.operation = operation.name;
  const std::string subject = fmt::format("the operation {}", operation.name);
  MOEJIT_TRY(check_target(kernel, target, subject));
  explain_tuning(kernel, target, options.tuning);
  Plan plan;  // filled field by field, as plan_layer() does
  plan.subject = subject;
  plan.target = target;
  if (options.tuning != nullptr) plan.tuned_for = options.tuning->gpu();
  plan.bounds = kernel.bounds;
  plan.tensors = std::move(parts.tensors);
  plan.operation = std::move(parts.description);
  for (TensorPlan& tensor : plan.tensors) complete_tensor(tensor, kernel);
  plan.kernels.push_back(std::move(kernel));
  plan.workspace_bytes = plan_workspace(plan, {}, {});
  make_operation_calls(plan);
  return plan;
}

}  // namespace moejit::compiler
