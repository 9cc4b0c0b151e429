// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/layer_file.h"
#include "cli/commands/open_plans.h"
#include "cli/commands/run_calls.h"
#include "cli/commands/run_report.h"
#include "runtime/trial/inputs.h"

#include <vector>

namespace moejit::cli {

// A run of a layer or an operation, on one device or on all ranks of a group.
struct Run {
  const RunCommand& command;  // must live longer
  OpenedPlans opened;
  RunCalls calls;
  std::vector<trial::CallInputs> inputs = {};  // of each rank
  RunReport report = {};

  const compiler::Plan& plan() const { return opened.plans.front(); }
};

// Opens the devices that the command asks for, plans the description and chooses the calls. Errors:
// of opening devices, of the planner, of find_call().
Result<Run> open_run(const RunCommand& command, const Description& description);

// Makes the calls with the data of the command, and completes the report with the times and, if the
// command says so, the checks. Returns the results of each rank, with states as the next step finds
// them. Errors: of reading data, the compiler, the cache, the device. A wrong result is none: the
// report tells.
Result<std::vector<runtime::TensorMap>> complete_run(Run& run, const Description& description,
                                                     Terminal& terminal);

}  // namespace moejit::cli
