// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/run_checks.h"

#include "compiler/group_plan.h"
#include "runtime/check/check_group.h"
#include "runtime/check/check_plan.h"
#include "runtime/trial/group_inputs.h"

#include <utility>

namespace moejit::cli {

using check::TensorCheck;
using compiler::Plan;
using runtime::TensorMap;

namespace {

// Adds checks whose tensors' names end with a suffix.
void add_checks(std::vector<TensorCheck>& checks, std::vector<TensorCheck> more,
                std::string_view suffix = {}) {
  for (TensorCheck& check : more) {
    check.tensor += suffix;
    checks.push_back(std::move(check));
  }
}

}  // namespace

std::vector<TensorCheck> check_calls(const Plan& plan, const RunCalls& calls,
                                     const TensorMap& inputs, const TensorMap& results,
                                     const TensorMap& states) {
  std::vector<TensorCheck> checks =
      check::check_plan(plan, names_of(plan, calls.passes), inputs, results);
  add_checks(checks, check::check_plan(plan, names_of(plan, calls.scales), results, states),
             kOfNextStep);
  return checks;
}

Result<std::vector<TensorCheck>> check_ranks(const RunCommand& command, const Plan& plan,
                                             std::span<const trial::CallInputs> inputs,
                                             std::span<const TensorMap> results,
                                             std::span<const int64_t> tokens,
                                             runtime::Engine& engine) {
  const trial::CallInputs whole = trial::join_inputs(*plan.layer, inputs);
  MOEJIT_TRY_ASSIGN(const auto devices, trial::Devices::open_one(to_string(plan.target),
                                                                 command.inputs.random.seed, ""));
  runtime::Device& device = devices->device(0);
  MOEJIT_TRY_ASSIGN(const Plan one,
                    compiler::plan_layer(compiler::layer_of_one_rank(*plan.layer), device.target(),
                                         {.keep_intermediates = true}));
  MOEJIT_TRY_ASSIGN(RunCalls calls, choose_calls(one, command, command.pass));
  if (calls.asked_for == nullptr) calls.scales.clear();
  MOEJIT_TRY_ASSIGN(const auto trial, trial::Trial::create(one, engine, device, whole));
  MOEJIT_TRY(make_calls(*trial, calls.passes));
  MOEJIT_TRY_ASSIGN(const TensorMap of_one, trial->results(0, true));
  MOEJIT_TRY(make_calls(*trial, calls.scales));
  MOEJIT_TRY_ASSIGN(const TensorMap states, read_states(*trial, calls, 0));
  std::vector<TensorCheck> checks;
  add_checks(checks, check_calls(one, calls, whole.tensors, of_one, states), " of one rank");
  add_checks(checks, check::check_group(*plan.layer, {.inputs = whole.tensors, .results = of_one},
                                        results, tokens));
  return checks;
}

}  // namespace moejit::cli
