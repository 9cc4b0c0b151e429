// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/commands.h"
#include "cli/commands/layer_file.h"

namespace moejit::cli {

Result<void> run_plan(const PlanCommand& command, Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const compiler::Plan plan, read_plan(command.layer, command.target));
  terminal.print(command.is_json ? compiler::plan_to_json(plan)
                                 : compiler::print_plan(plan, command.explain));
  return {};
}

}  // namespace moejit::cli
