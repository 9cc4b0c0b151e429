// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations/exchange.h"

#include "compiler/planner/operation.h"

#include <cassert>

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

template <>
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

template <>
KernelPlan make_kernel(const Operation& operation, const PackChoices& choices,
                       const KernelContext&) {
  KernelPlan kernel{.spec = choices.spec,
                    .reasons = {"places for T_max tokens, so that all ranks send the same bytes"}};
  add_arguments(kernel, operation,
                {"topk_ids", "topk_probs", "packed_ids", "packed_probs", "saved_tokens"});
  return kernel;
}

template <>
KernelPlan make_kernel(const Operation& operation, const TakeChoices& choices,
                       const KernelContext&) {
  KernelPlan kernel{.spec = choices.spec};
  add_arguments(kernel, operation, {"choice_ids", "choice_probs", "slot_ids", "slot_probs"});
  return kernel;
}

// make_kernel() of operations adds the arguments of every kernel that compares.
template <>
KernelPlan make_kernel(const Operation&, const CompareTokens&, const KernelContext&) {
  return {.spec = CompareTokensSpec{},
          .reasons = {"the other kernels go on, because peers wait for what they make"}};
}

template <>
KernelPlan make_kernel(const Operation& operation, const CombineArrived& combine,
                       const KernelContext&) {
  KernelPlan kernel{
      .spec = combine.spec,
      .reasons = {combine.spec.adds_rows
                      ? "every row comes home as it is, and is added in the order of one rank with "
                        "all experts: the bits of that rank"
                      : "ranks are added in ascending order"}};
  add_arguments(
      kernel, operation,
      {"results", "dprobs_of_ranks", "status_of_ranks", "topk_ids", "output", "dprobs", "status"});
  return kernel;
}

CollectivePlan make_collective(const Operation& operation, int32_t before) {
  const auto* const step = kind_of<Collective>(operation);
  assert(step != nullptr && step->movements.size() == operation.reads.size() &&
         operation.reads.size() == operation.writes.size());
  CollectivePlan plan{.operation = operation.name,
                      .phase = to_string(operation.phase),
                      .before = before,
                      .reasons = step->reasons};
  for (std::size_t i = 0; i < operation.reads.size(); ++i) {
    const Port &from = operation.reads[i], &to = operation.writes[i];
    const auto move = [&](const std::string& source, const std::string& destination) {
      plan.moves.push_back(
          {.movement = step->movements[i], .source = source, .destination = destination});
    };
    move(from.tensor, to.tensor);
    if (!from.scale_inv.empty()) move(from.scale_inv, to.scale_inv);
  }
  return plan;
}

}  // namespace moejit::compiler
