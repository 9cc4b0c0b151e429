// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/formula_llvm.h"
#include "cli/commands/layer_commands.h"
#include "cli/commands/layer_file.h"
#include "cli/terminal/output.h"

#include <nlohmann/json.hpp>

namespace moejit::cli {

Result<void> run_plan(const PlanCommand& command, Terminal& terminal) {
  std::string text;
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const std::string& path : command.layers) {
    MOEJIT_TRY_ASSIGN(const compiler::Plan plan, read_plan(path, command.plan));
    if (!command.is_json)
      text += (text.empty() ? "" : "\n") +
              compiler::print_plan(plan, command.explain, terminal.width()) +
              (command.explain ? costs_of_formulas(plan) : "");
    else if (command.layers.size() == 1)
      text = compiler::plan_to_json(plan);
    else
      json.push_back(nlohmann::ordered_json::parse(compiler::plan_to_json(plan)));
  }
  if (!json.empty()) text = json_output({{"plans", json}});
  terminal.print(text);
  return {};
}

}  // namespace moejit::cli
