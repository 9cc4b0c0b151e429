// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/commands.h"
#include "cli/commands/layer_file.h"
#include "cli/commands/tuning_records.h"

#include <nlohmann/json.hpp>

namespace moejit::cli {

Result<void> run_plan(const PlanCommand& command, Terminal& terminal) {
  std::string text;
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  MOEJIT_TRY_ASSIGN(const auto tuning, read_tuning_records(command.tuning));
  for (const std::string& path : command.layers) {
    MOEJIT_TRY_ASSIGN(const DescribedPlan described,
                      read_described_plan(path, command.target, {.tuning = tuning.get()}));
    std::visit(
        [&](const auto& plan) {
          if (!command.is_json)
            text += (text.empty() ? "" : "\n") +
                    compiler::print_plan(plan, command.explain, terminal.width());
          else if (command.layers.size() == 1)
            text = compiler::plan_to_json(plan);
          else
            json.push_back(nlohmann::ordered_json::parse(compiler::plan_to_json(plan)));
        },
        described);
  }
  if (!json.empty()) text = nlohmann::ordered_json{{"plans", json}}.dump(2) + "\n";
  terminal.print(text);
  return {};
}

}  // namespace moejit::cli
