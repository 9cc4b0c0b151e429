// SPDX-License-Identifier: Apache-2.0
#include "compiler/exchange.h"

#include "compiler/planner/complete_kernel.h"
#include "compiler/planner/exchange_operation.h"
#include "compiler/planner/plan_workspace.h"

#include <fmt/core.h>

namespace moejit::compiler {

Result<Plan> plan_exchange(ExchangeStep step, const Exchange& exchange, const Target& target) {
  MOEJIT_TRY(check_exchange(step, exchange));
  ExchangeOperation made = exchange_operation(step, exchange);
  Graph graph;
  graph.values = std::move(made.values);
  graph.operations.push_back(std::move(made.operation));
  const CallBounds bounds{.max_tokens = exchange.max_tokens,
                          .top_k = static_cast<int32_t>(exchange.top_k),
                          .groups = static_cast<int32_t>(exchange.experts / exchange.ranks),
                          .max_permuted_rows = exchange.max_permuted_rows > 0
                                                   ? exchange.max_permuted_rows
                                                   : exchange.max_tokens * exchange.top_k,
                          .experts = exchange.experts};
  const PlanOptions options;
  KernelPlan kernel = make_kernel(graph.operations.front(),
                                  {.bounds = bounds, .target = target, .options = options});
  complete_kernel(kernel, bounds);
  set_rank(kernel, exchange.rank, exchange.timeout_ms);
  Plan plan{.subject = fmt::format("the step {} of an exchange", to_string(step)),
            .target = target,
            .bounds = bounds,
            .tensors = make_tensors(graph)};
  for (TensorPlan& tensor : plan.tensors)
    tensor.role = writes(kernel, tensor.name) ? TensorRole::kOutput : TensorRole::kInput;
  plan.kernels.push_back(std::move(kernel));
  plan.workspace_bytes = plan_workspace(plan, {});
  return plan;
}

std::string_view to_string(ExchangeStep step) {
  switch (step) {
    case ExchangeStep::kChoices: return "exchange_choices";
    case ExchangeStep::kDispatch: return "dispatch_rows";
    case ExchangeStep::kDispatchPermute: return "dispatch_permute";
    case ExchangeStep::kAwait: return "await_rows";
    case ExchangeStep::kCombineRows: return "combine_rows";
  }
  return "unknown";
}

}  // namespace moejit::compiler
