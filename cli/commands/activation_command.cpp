// SPDX-License-Identifier: Apache-2.0
// Shows what formulas become, and has the program moejit-formula check them.
#include "cli/commands/formula_llvm.h"
#include "cli/commands/layer_commands.h"
#include "compiler/formula_report.h"

#include <cmath>
#include <fmt/format.h>
#include <string>
#include <vector>

namespace moejit::cli {
namespace {

std::string result_text(float result) {
  return std::isnan(result) ? "NaN" : fmt::format("{:g}", result);
}

std::string text_of(const compiler::FormulaReport& formula,
                    const std::vector<std::string>& variables) {
  const std::string text = formula.text.empty() ? "(long: see the code below)" : formula.text;
  std::string lines = fmt::format("{:<11} {}\n", formula.name, text);
  if (const auto& at = formula.bad_point) {
    std::string place = fmt::format("{} = {:g}", variables.front(), at->first);
    if (variables.size() > 1) place += fmt::format(", {} = {:g}", variables.back(), at->second);
    lines += fmt::format("{:<11} nearest point without a finite result: {} gives {}\n", "", place,
                         result_text(at->result));
  }
  return lines;
}

Result<std::string> ask(const ActivationCommand& command) {
  std::vector<std::string> options;
  if (command.check) options.emplace_back("--check");
  if (command.ir) options.emplace_back("--ir");
  if (command.is_json) options.emplace_back("--json");
  return ask_llvm(command.formula, options);
}

}  // namespace

Result<void> run_activation(const ActivationCommand& command, Terminal& terminal) {
  auto formula = compiler::parse_user_formula(command.formula);
  if (!formula) {
    formula.error().message = "the formula, " + formula.error().message;
    return tl::make_unexpected(std::move(formula.error()));
  }
  if (command.is_json && !command.check && !command.ir)
    return fail(Stage::kCommand, ErrorCode::kUsage, "--json wants --check or --ir",
                "add one of them");
  if (command.check || command.ir) {
    const Result<std::string> text = ask(command);
    if (text || text.error().code == ErrorCode::kCheckFailed)
      terminal.print(text ? *text : text.error().detail);
    MOEJIT_TRY(text);
    return {};
  }
  const compiler::FormulasReport report = compiler::report(*formula);
  for (const compiler::FormulaReport& part : report.formulas)
    terminal.print(text_of(part, formula->variables));
  terminal.print("\n" + report.value_code + "\n" + report.gradient_code);
  return {};
}

}  // namespace moejit::cli
