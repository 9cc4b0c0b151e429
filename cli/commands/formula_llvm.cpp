// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/formula_llvm.h"

#include "compiler/formula_program.h"

#include <array>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <system_error>

namespace moejit::cli {
namespace {

std::string cost_of(std::string_view what, const compiler::Expression& formula) {
  const std::string text = to_string(formula);
  const std::array<std::string, 2> options = {"--ir", "--json"};
  const Result<std::string> told = ask_llvm(text, options);
  if (!told) return {};
  const auto json = nlohmann::json::parse(*told);
  return fmt::format("{} {}: {} operations of LLVM {} for value and derivatives of an element\n",
                     what, text, json.at("operations").get<int64_t>(),
                     json.at("llvm").get<std::string>());
}

}  // namespace

Result<std::string> ask_llvm(std::string_view formula, std::span<const std::string> options) {
  std::error_code error;
  const auto own = std::filesystem::read_symlink("/proc/self/exe", error);
  return compiler::run_formula_program(own.parent_path() / "moejit-formula", formula, options);
}

std::string costs_of_formulas(const compiler::Plan& plan) {
  std::string lines;
  if (!plan.layer) return lines;
  if (plan.layer->activation.preset == compiler::kOwnFormula)
    lines += cost_of("activation", plan.layer->activation.formula);
  if (const auto& router = plan.layer->router;
      router && router->score == compiler::RouterScore::kExpression)
    lines += cost_of("score", router->expression);
  return lines;
}

}  // namespace moejit::cli
