// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/layer_commands.h"
#include "cli/commands/layer_file.h"
#include "cli/commands/tuning_records.h"
#include "cli/terminal/output.h"
#include "compiler/group_plan.h"

#include <nlohmann/json.hpp>
#include <optional>

namespace moejit::cli {
namespace {

// Returns the plan of rank 0 if the file describes a layer of a group, else none.
Result<std::optional<compiler::GroupPlan>> read_group_plan(const PlanCommand& command,
                                                           const std::string& path,
                                                           const compiler::Tuning* tuning) {
  MOEJIT_TRY_ASSIGN(const compiler::Target parsed, compiler::parse_target(command.target));
  MOEJIT_TRY_ASSIGN(Description description, read_layer_or_operation(path));
  auto* const layer = std::get_if<compiler::Layer>(&description);
  if (layer == nullptr || !compiler::is_of_group(*layer)) return std::nullopt;
  choose_passes(*layer, command.pass);
  MOEJIT_TRY_ASSIGN(compiler::GroupPlan plan,
                    compiler::plan_group_layer(*layer, parsed, {.tuning = tuning}));
  return plan;
}

}  // namespace

Result<void> run_plan(const PlanCommand& command, Terminal& terminal) {
  std::string text;
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  MOEJIT_TRY_ASSIGN(const auto tuning, read_tuning_records(command.tuning));
  for (const std::string& path : command.layers) {
    const auto add = [&](const auto& plan) {
      if (!command.is_json)
        text += (text.empty() ? "" : "\n") +
                compiler::print_plan(plan, command.explain, terminal.width());
      else if (command.layers.size() == 1)
        text = compiler::plan_to_json(plan);
      else
        json.push_back(nlohmann::ordered_json::parse(compiler::plan_to_json(plan)));
    };
    MOEJIT_TRY_ASSIGN(const auto group, read_group_plan(command, path, tuning.get()));
    if (group) {
      add(*group);
      continue;
    }
    MOEJIT_TRY_ASSIGN(
        const DescribedPlan described,
        read_described_plan(path, command.target, {.tuning = tuning.get()}, command.pass));
    std::visit(add, described);
  }
  if (!json.empty()) text = json_output({{"plans", json}});
  terminal.print(text);
  return {};
}

}  // namespace moejit::cli
