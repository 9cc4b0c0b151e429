// SPDX-License-Identifier: Apache-2.0
#include "compiler/call_order.h"

#include <algorithm>
#include <functional>
#include <optional>

namespace moejit::compiler {
namespace {

using Order = std::vector<std::size_t>;  // of indices into Plan::calls

// Something that a call reads and that another call writes.
struct CallNeed {
  std::function<bool(const CallPlan&)> is_met_by;
  bool is_gathered = false;  // whether every call of a step adds to it
  bool is_of_first = false;  // whether the plan's first call that meets it is the one to make
};

bool contains(const Order& order, std::size_t call) {
  return std::ranges::find(order, call) != order.end();
}

bool writes_slot(const CallPlan& call, std::size_t slot) {
  const auto taken = std::ranges::find(call.tensors, slot, &CallTensor::slot);
  return taken != call.tensors.end() && writes(taken->access);
}

// Blocks come first: the calls that fill them write most of the tensors, too.
std::vector<CallNeed> needs_of(const Plan& plan, const CallPlan& call) {
  std::vector<CallNeed> needs;
  // Calls that do a part of forward fill the saved block with fewer kernels, but compute no y.
  for (BlockUse CallPlan::*const block : {&CallPlan::saved, &CallPlan::deferred})
    if (call.*block == BlockUse::kRead)
      needs.push_back(
          {.is_met_by = [block](const CallPlan& one) { return one.*block == BlockUse::kWrite; },
           .is_of_first = block == &CallPlan::saved});
  const bool is_of_states = takes_states_alone(plan, call);
  for (const CallTensor& taken : call.tensors) {
    const TensorRole role = plan.tensors[taken.slot].role;
    const bool is_made = role == TensorRole::kQuantized || role == TensorRole::kDispatched;
    // A call that also writes such a tensor makes it itself.
    if (is_of_states || (is_made && taken.access == Access::kRead && !taken.is_shape_only))
      needs.push_back(
          {.is_met_by = [slot = taken.slot](const CallPlan& one) { return writes_slot(one, slot); },
           .is_gathered = is_of_states});
  }
  return needs;
}

Order with_call(const Plan& plan, Order order, std::size_t call, Order pending);

// Returns the order with a call that meets the need. `pending` are the calls whose needs are being
// met. Without such a call the caller of the calls brings what is needed.
Order with_need(const Plan& plan, const Order& order, const CallNeed& need, const Order& pending) {
  const auto meets = [&](std::size_t call) { return need.is_met_by(plan.calls[call]); };
  if (std::ranges::any_of(order, meets)) return order;
  std::optional<Order> best;
  std::size_t kernels_of_best = 0;
  for (std::size_t call = 0; call < plan.calls.size(); ++call) {
    if (!meets(call) || contains(pending, call)) continue;
    Order tried = with_call(plan, order, call, pending);
    const std::size_t kernels = kernels_of(plan, tried).size();
    const bool is_better = need.is_gathered ? kernels > kernels_of_best : kernels < kernels_of_best;
    if (best && !is_better) continue;
    best = std::move(tried);
    kernels_of_best = kernels;
    if (need.is_of_first) break;
  }
  return best.value_or(order);
}

// Returns the order with what the call needs and the call.
Order with_call(const Plan& plan, Order order, std::size_t call, Order pending) {
  if (contains(order, call)) return order;
  pending.push_back(call);
  for (const CallNeed& need : needs_of(plan, plan.calls[call]))
    order = with_need(plan, order, need, pending);
  order.push_back(call);
  return order;
}

}  // namespace

Result<std::vector<std::size_t>> calls_up_to(const Plan& plan, std::string_view name) {
  MOEJIT_TRY_ASSIGN(const std::size_t call, find_call(plan, name));
  return with_call(plan, {}, call, {});
}

bool takes_states_alone(const Plan& plan, const CallPlan& call) {
  return !call.tensors.empty() && std::ranges::all_of(call.tensors, [&](const CallTensor& taken) {
    return plan.tensors[taken.slot].role == TensorRole::kState;
  });
}

bool writes(const Plan& plan, const CallPlan& call, std::string_view tensor) {
  return std::ranges::any_of(call.steps, [&](const CallStep& step) {
    if (!step.is_collective) return writes(plan.kernels[step.index], tensor);
    return std::ranges::find(plan.collectives[step.index].moves, tensor, &BlockMove::destination) !=
           plan.collectives[step.index].moves.end();
  });
}

std::vector<std::size_t> kernels_of(const Plan& plan, const std::vector<std::size_t>& calls) {
  std::vector<std::size_t> kernels;
  for (const std::size_t call : calls)
    for (const CallStep& step : plan.calls[call].steps)
      if (!step.is_collective) kernels.push_back(step.index);
  return kernels;
}

}  // namespace moejit::compiler
