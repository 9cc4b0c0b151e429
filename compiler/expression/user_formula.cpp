// SPDX-License-Identifier: Apache-2.0
#include "compiler/user_formula.h"

#include <algorithm>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <utility>

namespace moejit::compiler {
namespace {

constexpr std::string_view kLettersOfNames = "abcdefghijklmnopqrstuvwxyz_0123456789";

bool mentions(const Expression& e, std::string_view variable) {
  return e.name() == variable || std::ranges::any_of(e.operands(), [&](const Expression& part) {
           return mentions(part, variable);
         });
}

// Returns whether one of the words of a text is `logit`: what else it has may be wrong.
bool is_about_logit(std::string_view text) {
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find_first_not_of(kLettersOfNames, start), text.size());
    if (text.substr(start, end - start) == "logit") return true;
    start = end + 1;
  }
  return false;
}

Result<Activation> activation_of(std::string_view text) {
  const std::vector<std::string_view> presets = preset_names();
  if (std::ranges::count(presets, text) > 0) return make_activation(text);
  Result<Activation> activation = parse_activation(text);
  if (activation) return activation;
  Error error = std::move(activation.error());
  const bool is_word = text.find_first_not_of(kLettersOfNames) == std::string_view::npos;
  if (is_word && error.hint.empty())
    error.hint = fmt::format("presets: {}", fmt::join(presets, ", "));
  return tl::make_unexpected(std::move(error));
}

}  // namespace

Result<Expression> parse_score(std::string_view formula) {
  MOEJIT_TRY_ASSIGN(Expression score,
                    parse_expression(formula, {.variables = {"logit"}, .constants = {}}));
  if (mentions(score, "logit")) return score;
  return fail(Stage::kParse, ErrorCode::kInvalidValue, "got a formula without logit",
              "a score is a formula of logit, such as \"sqrt(relu(logit))\"");
}

Result<UserFormula> parse_user_formula(std::string_view text) {
  if (is_about_logit(text)) {
    MOEJIT_TRY_ASSIGN(Expression score, parse_score(text));
    return UserFormula{.value = std::move(score), .variables = {"logit"}, .activation = {}};
  }
  MOEJIT_TRY_ASSIGN(Activation activation, activation_of(text));
  UserFormula formula{.value = activation.formula, .variables = {"up"}, .activation = {}};
  if (has_gate(activation)) formula.variables = {"gate", "up"};
  formula.activation = std::move(activation);
  return formula;
}

std::vector<NamedFormula> value_and_derivatives(const UserFormula& formula) {
  std::vector<NamedFormula> all = {{"value", formula.value}};
  for (const std::string& variable : formula.variables)
    all.push_back({fmt::format("d / d {}", variable), differentiate(formula.value, variable)});
  return all;
}

}  // namespace moejit::compiler
