// SPDX-License-Identifier: Apache-2.0
#include "compiler/formula_report.h"

#include <cmath>
#include <gtest/gtest.h>

namespace moejit::compiler {
namespace {

std::optional<BadPoint> bad_point_of(std::string_view formula) {
  const UserFormula read = parse_user_formula(formula).value();
  return find_bad_point(read.value, read.variables);
}

TEST(FindBadPoint, FindsWhereALogarithmHasNoValue) {
  const auto at = bad_point_of("log(1 + gate) * up");
  ASSERT_TRUE(at);
  EXPECT_EQ(at->first, -1.0f);
  EXPECT_TRUE(std::isnan(at->result));  // 0 * -infinity, with an up of 0
}

TEST(FindBadPoint, FindsADivisionByZero) {
  const auto at = bad_point_of("up / gate");
  ASSERT_TRUE(at);
  EXPECT_EQ(at->first, 0.0f);
  EXPECT_EQ(at->second, 0.0f);
}

TEST(FindBadPoint, FindsTheRootOfANegativeNumber) {
  const auto at = bad_point_of("sqrt(up + 2) * sigmoid(gate)");
  ASSERT_TRUE(at);
  EXPECT_LT(at->second, -2.0f);
  EXPECT_GE(at->second, -2.015625f);  // the next number of bf16
}

// e^88.5 is below 2^128 = e^88.72..., and e^89 is not.
TEST(FindBadPoint, FindsOverflowInFp32) {
  const auto at = bad_point_of("exp(gate) + up");
  ASSERT_TRUE(at);
  EXPECT_EQ(*at, (BadPoint{89.0f, 0.0f, INFINITY}));
}

TEST(FindBadPoint, FindsNothingWhereTheResultIsBounded) {
  EXPECT_EQ(bad_point_of("sigmoid(gate) * tanh(up)"), std::nullopt);
  EXPECT_EQ(bad_point_of("sqrt(abs(gate)) + 0 * up"), std::nullopt);
}

// e^88.5 is below 2^128 here, too; the other variable does not count.
TEST(FindBadPoint, KnowsScores) {
  EXPECT_EQ(bad_point_of("exp(logit)"), (BadPoint{89.0f, 0.0f, INFINITY}));
  EXPECT_EQ(bad_point_of("sqrt(relu(logit))"), std::nullopt);
}

TEST(FormulasReport, HasTheValueBothDerivativesAndTheCode) {
  const FormulasReport made = report(parse_user_formula("tanh(gate) * up").value());
  ASSERT_EQ(made.formulas.size(), 3u);
  EXPECT_EQ(made.formulas[0].text, "tanh(gate) * up");
  EXPECT_EQ(made.formulas[1].text, "(1 - tanh(gate) * tanh(gate)) * up");
  EXPECT_EQ(made.formulas[2].text, "tanh(gate)");
  EXPECT_EQ(made.formulas[1].bad_point, std::nullopt);
  EXPECT_NE(made.value_code.find("ptx::hyperbolic_tangent(gate)"), std::string::npos);
  EXPECT_NE(made.gradient_code.find("ActivationGradients gradients("), std::string::npos);
}

TEST(FormulasReport, HasTheSlopeOfScores) {
  const FormulasReport made = report(parse_user_formula("sigmoid(logit) + 2 * logit").value());
  ASSERT_EQ(made.formulas.size(), 2u);
  EXPECT_EQ(made.formulas[1].name, "d / d logit");
  EXPECT_NE(made.value_code.find("float value(float logit)"), std::string::npos) << made.value_code;
  EXPECT_NE(made.gradient_code.find("float slope(float logit)"), std::string::npos);
}

TEST(UserFormula, IsReadByItsVariables) {
  EXPECT_EQ(parse_user_formula("swiglu")->variables, (std::vector<std::string>{"gate", "up"}));
  EXPECT_EQ(parse_user_formula("relu(up) * relu(up)")->variables, std::vector<std::string>{"up"});
  EXPECT_EQ(parse_user_formula("log(logit)")->variables, std::vector<std::string>{"logit"});
  EXPECT_EQ(parse_user_formula("logit * gate").error().message,
            "column 9: got \"gate\", wanted one of logit");
}

}  // namespace
}  // namespace moejit::compiler
