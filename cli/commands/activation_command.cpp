// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/layer_commands.h"
#include "compiler/activation.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace moejit::cli {
namespace {

Result<compiler::Activation> activation_of(const std::string& text) {
  const std::vector<std::string_view> presets = compiler::preset_names();
  if (std::ranges::count(presets, text) > 0) return compiler::make_activation(text);
  Result<compiler::Activation> activation = compiler::parse_activation(text);
  if (activation) return activation;
  Error error = std::move(activation.error());
  error.message = "the formula, " + error.message;
  const bool is_word =
      text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789") == std::string::npos;
  if (is_word && error.hint.empty())
    error.hint = fmt::format("presets: {}", fmt::join(presets, ", "));
  return tl::make_unexpected(std::move(error));
}

std::string result_text(float result) {
  return std::isnan(result) ? "NaN" : fmt::format("{:g}", result);
}

std::string text_of(const compiler::FormulaReport& formula) {
  const std::string text = formula.text.empty() ? "(long: see the code below)" : formula.text;
  std::string line = fmt::format("{:<10}  {}\n", formula.name, text);
  if (const auto& at = formula.bad_point)
    line += fmt::format(
        "{:<10}  nearest point without a finite result: gate = {:g}, up = {:g} "
        "gives {}\n",
        "", at->gate, at->up, result_text(at->result));
  return line;
}

}  // namespace

Result<void> run_activation(const ActivationCommand& command, Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const compiler::Activation activation, activation_of(command.formula));
  const compiler::ActivationReport report = compiler::report(activation);
  for (const compiler::FormulaReport& formula : report.formulas) terminal.print(text_of(formula));
  terminal.print("\n" + report.value_code + "\n" + report.gradient_code);
  return {};
}

}  // namespace moejit::cli
