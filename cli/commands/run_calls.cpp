// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/run_calls.h"

#include "compiler/call_order.h"

#include <fmt/core.h>
#include <utility>

namespace moejit::cli {

using compiler::CallPlan;
using compiler::Plan;
using compiler::TensorPlan;
using compiler::TensorRole;
using runtime::TensorMap;

std::vector<std::size_t> RunCalls::all() const {
  std::vector<std::size_t> calls = passes;
  calls.insert(calls.end(), scales.begin(), scales.end());
  return calls;
}

std::vector<std::string> RunCalls::names(const Plan& plan) const {
  if (asked_for == nullptr) return {};
  const std::vector<std::string_view> names = names_of(plan, all());
  return {names.begin(), names.end()};
}

std::vector<std::string_view> names_of(const Plan& plan, const std::vector<std::size_t>& calls) {
  std::vector<std::string_view> names;
  for (const std::size_t call : calls) names.push_back(plan.calls[call].name);
  return names;
}

Result<RunCalls> choose_calls(const Plan& plan, const RunCommand& command, std::string_view usual) {
  const bool is_asked_for = !command.call.empty();
  RunCalls calls;
  MOEJIT_TRY_ASSIGN(calls.passes, compiler::calls_up_to(plan, is_asked_for ? command.call : usual));
  if (!is_asked_for) {
    for (std::size_t call = 0; call < plan.calls.size(); ++call)
      if (takes_states_alone(plan, plan.calls[call])) calls.scales.push_back(call);
    return calls;
  }
  calls.asked_for = &plan.calls[calls.passes.back()];
  if (takes_states_alone(plan, *calls.asked_for)) {
    calls.scales.push_back(calls.passes.back());
    calls.passes.pop_back();
  }
  return calls;
}

void tell_calls(const Plan& plan, const RunCalls& calls, const Terminal& terminal) {
  if (calls.asked_for != nullptr && calls.asked_for->steps.empty())
    terminal.warn(fmt::format("the call {} of {} has no kernels, and does nothing",
                              calls.asked_for->name, plan.subject));
}

Result<void> make_calls(trial::Trial& trial, const std::vector<std::size_t>& calls,
                        runtime::LaunchObserver* observer) {
  for (const std::size_t call : calls)
    MOEJIT_TRY(trial.call(trial.plan().calls[call].name, observer));
  return {};
}

bool is_output(const Plan& plan, const RunCalls& calls, const TensorPlan& tensor) {
  if (trial::is_result(tensor)) return true;
  const bool is_kept = tensor.role == TensorRole::kQuantized ||
                       tensor.role == TensorRole::kDispatched;  // by the caller
  return is_kept && calls.asked_for != nullptr && writes(plan, *calls.asked_for, tensor.name);
}

Result<TensorMap> read_results(const trial::Trial& trial, const RunCalls& calls, int32_t rank,
                               bool with_intermediates) {
  MOEJIT_TRY_ASSIGN(TensorMap results, trial.results(rank, with_intermediates));
  const Plan& plan = trial.plan(rank);
  for (const TensorPlan& tensor : plan.tensors) {
    const bool is_missing = !trial::is_result(tensor) && !results.contains(tensor.name);
    if (!is_missing || !is_output(plan, calls, tensor)) continue;
    MOEJIT_TRY_ASSIGN(results[tensor.name], trial.read(tensor, rank));
  }
  return results;
}

Result<TensorMap> read_states(const trial::Trial& trial, const RunCalls& calls, int32_t rank) {
  TensorMap states;
  if (calls.scales.empty()) return states;
  for (const TensorPlan& tensor : trial.plan(rank).tensors) {
    if (tensor.role != TensorRole::kState) continue;
    MOEJIT_TRY_ASSIGN(states[tensor.name], trial.read(tensor, rank));
  }
  return states;
}

}  // namespace moejit::cli
