// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/kernel_commands.h"
#include "compiler/plan.h"
#include "runtime/trial/trial.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::cli {

// The calls that a run makes, in their order, as indices into Plan::calls.
struct RunCalls {
  std::vector<std::size_t> passes;                // all calls but those that take states alone
  std::vector<std::size_t> scales;                // then calls that take states alone
  const compiler::CallPlan* asked_for = nullptr;  // the call that --call names; null: none

  // Returns all of them, and their names if the user asked for a call.
  std::vector<std::size_t> all() const;
  std::vector<std::string> names(const compiler::Plan& plan) const;
};

// Returns the names of calls.
std::vector<std::string_view> names_of(const compiler::Plan& plan,
                                       const std::vector<std::size_t>& calls);

// Returns what `--call NAME` runs: the call, and the calls that it needs before it. Without --call
// it is `usual` and what that needs, and then all calls that find the scales of the next step.
// Errors: as find_call() returns them.
Result<RunCalls> choose_calls(const compiler::Plan& plan, const RunCommand& command,
                              std::string_view usual);

// Warns if the call that the user asked for has nothing to do.
void tell_calls(const compiler::Plan& plan, const RunCalls& calls, const Terminal& terminal);

// Makes calls on all ranks.
Result<void> make_calls(trial::Trial& trial, const std::vector<std::size_t>& calls,
                        runtime::LaunchObserver* observer = nullptr);

// Returns whether a tensor is in the file of --output: a result, or a caller's tensor that the call
// of --call wrote.
bool is_output(const compiler::Plan& plan, const RunCalls& calls,
               const compiler::TensorPlan& tensor);

// Returns the tensors of the file of a rank's results: trial.results(), and the caller's tensors
// that the call of --call wrote.
Result<runtime::TensorMap> read_results(const trial::Trial& trial, const RunCalls& calls,
                                        int32_t rank, bool with_intermediates);

// Returns the states of a rank after calls that take states alone; none without such calls.
Result<runtime::TensorMap> read_states(const trial::Trial& trial, const RunCalls& calls,
                                       int32_t rank);

}  // namespace moejit::cli
