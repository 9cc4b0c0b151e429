// SPDX-License-Identifier: Apache-2.0
#include "tests/support/exchange_plan.h"

#include "compiler/planner/exchange_operation.h"
#include "compiler/planner/planner_steps.h"
#include "moejit_device/params/exchange_params.h"

#include <fmt/core.h>

namespace moejit::compiler {
namespace {

// Returns what is wrong with an exchange, or nothing.
std::string fault_of(const Exchange& exchange) {
  const auto outside = [](std::string_view what, int64_t got, int64_t least, int64_t most) {
    return got < least || got > most
               ? fmt::format("{} is {}, wanted {} to {}", what, got, least, most)
               : std::string();
  };
  for (const std::string& fault : {outside("ranks", exchange.ranks, 2, device::kMostRanks),
                                   outside("rank", exchange.rank, 0, exchange.ranks - 1),
                                   outside("top_k", exchange.top_k, 1, 32),
                                   outside("max_tokens", exchange.max_tokens, 1, 16384),
                                   outside("columns", exchange.columns, 16, 65536)})
    if (!fault.empty()) return fault;
  if (exchange.experts < exchange.ranks || exchange.experts % exchange.ranks != 0)
    return fmt::format("experts is {}, wanted a multiple of the {} ranks", exchange.experts,
                       exchange.ranks);
  if (exchange.columns % 16 != 0)
    return fmt::format("columns is {}, wanted a multiple of 16", exchange.columns);
  if (exchange.format == DType::kBF16 && exchange.input != DType::kBF16)
    return "rows that are quantized already travel as they are, wanted format F8_E4M3";
  return {};
}

Result<void> check(ExchangeStep step, const Exchange& exchange) {
  std::string fault = fault_of(exchange);
  const bool has_permuted_rows = step == ExchangeStep::kDispatchPermute ||
                                 step == ExchangeStep::kRouteDispatchPermute ||
                                 step == ExchangeStep::kCombineRows;
  if (fault.empty() && has_permuted_rows && exchange.max_permuted_rows < 1)
    fault = fmt::format("max_permuted_rows is {}, wanted 1 or more for {}",
                        exchange.max_permuted_rows, to_string(step));
  if (fault.empty()) return {};
  return fail(Stage::kPlan, ErrorCode::kUnsupported, "an exchange between ranks: " + fault);
}

}  // namespace

Result<Plan> plan_exchange(ExchangeStep step, const Exchange& exchange, const Target& target) {
  MOEJIT_TRY(check(step, exchange));
  ExchangeOperation made = exchange_operation(step, exchange);
  Graph graph;
  graph.values = std::move(made.values);
  graph.operations.push_back(std::move(made.operation));
  const CallBounds bounds{.max_tokens = exchange.max_tokens,
                          .top_k = static_cast<int32_t>(exchange.top_k),
                          .groups = static_cast<int32_t>(exchange.experts / exchange.ranks),
                          .splits_alignment = static_cast<int32_t>(exchange.splits_alignment),
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
  plan.workspace_bytes = plan_workspace(plan, {}, {});
  make_operation_calls(plan);
  return plan;
}

}  // namespace moejit::compiler
