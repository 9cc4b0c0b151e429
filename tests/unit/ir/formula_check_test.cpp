// SPDX-License-Identifier: Apache-2.0
// What `moejit activation --check` says of right formulas, and of wrong derivatives.
#include "compiler/ir/formula_check.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace moejit::ir {
namespace {

using compiler::NamedFormula;
using compiler::UserFormula;

const std::vector<std::string> kFormulas = {
    "tanh(gate) * erf(up) + gelu_tanh(gate) / (exp(-abs(up)) + 1) + log(1 + relu(gate))",
    "where(gate < up, silu(gate), fma(gate, up, 1)) * where(up <= 0, -up, up)",
    "relu(up) * relu(up)",
    "log(1 + gate) * up",
    "sqrt(log(1 + exp(logit)))",
    "sqrt(relu(logit))",
    "clamp(logit, -3, 3) / (1 + abs(logit))"};

std::vector<PartCheck> checks_of(const UserFormula& formula,
                                 const std::vector<NamedFormula>& parts) {
  auto checks = check_formula(parts, formula.variables);
  EXPECT_TRUE(checks);
  return checks.value_or(std::vector<PartCheck>{});
}

TEST(FormulaCheck, PassesWhatIsRight) {
  std::vector<std::string> all = kFormulas;
  for (const std::string_view name : compiler::preset_names()) all.emplace_back(name);
  for (const std::string& text : all) {
    const UserFormula formula = compiler::parse_user_formula(text).value();
    const std::vector<PartCheck> checks = checks_of(formula, value_and_derivatives(formula));
    ASSERT_EQ(checks.size(), 1 + formula.variables.size());
    for (const PartCheck& check : checks) {
      EXPECT_TRUE(check.has_passed)
          << text << ": " << check.name << ", " << check.worst.got << ", " << check.worst.wanted
          << ", " << check.worst.allowed << " at " << check.worst.variables.front();
      EXPECT_GE(check.places, 10000) << text << ": " << check.name;
    }
  }
}

// A thousandth too much is seen, whichever variable the derivative belongs to.
TEST(FormulaCheck, NamesAPlaceWhereADerivativeIsWrong) {
  for (const std::string& text : kFormulas) {
    const UserFormula formula = compiler::parse_user_formula(text).value();
    for (std::size_t wrong = 1; wrong <= formula.variables.size(); ++wrong) {
      std::vector<NamedFormula> parts = value_and_derivatives(formula);
      parts[wrong].formula = parts[wrong].formula * compiler::Expression(1.001);
      const std::vector<PartCheck> checks = checks_of(formula, parts);
      for (std::size_t i = 0; i < checks.size(); ++i)
        EXPECT_EQ(checks[i].has_passed, i != wrong) << text << ": " << checks[i].name;
      EXPECT_GT(checks[wrong].worst.ratio, 1.0);
    }
  }
}

}  // namespace
}  // namespace moejit::ir
