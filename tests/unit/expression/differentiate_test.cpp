// SPDX-License-Identifier: Apache-2.0
#include "compiler/expression.h"
#include "tests/unit/expression/parsed_expression.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <string>

namespace moejit::compiler {
namespace {

double slope_at(std::string_view text, double gate, double up = 0.0) {
  return evaluate(differentiate(parsed(text), "gate"), {{"gate", gate}, {"up", up}});
}

TEST(Differentiate, KnowsTheRulesOfArithmetic) {
  const auto text = [](std::string_view formula) {
    return to_string(differentiate(parsed(formula), "gate"));
  };
  EXPECT_EQ(text("5"), "0");
  EXPECT_EQ(text("up"), "0");
  EXPECT_EQ(text("gate"), "1");
  EXPECT_EQ(text("3 * gate + up"), "3");
  EXPECT_EQ(text("gate * up"), "up");
  EXPECT_EQ(text("gate * gate"), "gate + gate");
  EXPECT_EQ(text("gate / up"), "1 / up");
  EXPECT_EQ(text("-gate"), "-1");
  EXPECT_EQ(text("fma(gate, up, gate)"), "up + 1");
  EXPECT_EQ(text("where(gate < 1, 3 * gate, up)"), "where(gate < 1, 3, 0)");
}

// A step h of 2^-17 is off by h^2 / 6 times the third derivative, which is below 100 here, and by
// 2^-52 / h times the value, below 10: together below 1e-8.
TEST(Differentiate, AgreesWithDifferences) {
  constexpr double kStep = 0x1p-17;
  for (const char* formula : {"sigmoid(gate)",
                              "silu(gate)",
                              "tanh(gate)",
                              "exp(gate)",
                              "log(gate + 4)",
                              "sqrt(gate + 4)",
                              "abs(gate)",
                              "relu(gate)",
                              "erf(gate)",
                              "erfc(gate)",
                              "gelu(gate)",
                              "gelu_tanh(gate)",
                              "quick_gelu(gate)",
                              "min(gate, up)",
                              "max(gate, up)",
                              "min(gate, 1)",
                              "max(1, gate)",
                              "clamp(gate, -1, 1)",
                              "up / (gate * gate + 1)",
                              "gate / (exp(gate) + 1) * up",
                              "silu(gate * up) * tanh(gate / 3)"}) {
    const Expression f = parsed(formula);
    for (const double gate : {-2.3, -1.1, -0.4, 0.3, 0.9, 1.7})
      for (const double up : {-0.7, 1.3}) {
        const auto value = [&](double x) { return evaluate(f, {{"gate", x}, {"up", up}}); };
        const double wanted = (value(gate + kStep) - value(gate - kStep)) / (2 * kStep);
        EXPECT_NEAR(slope_at(formula, gate, up), wanted, 1e-8) << formula << " at " << gate;
      }
  }
}

TEST(Differentiate, HasPyTorchsDerivativesAtKinks) {
  EXPECT_EQ(slope_at("relu(gate)", 0.0), 0.0);
  EXPECT_EQ(slope_at("abs(gate)", 0.0), 0.0);
  EXPECT_EQ(slope_at("abs(gate)", -0.0), 0.0);
  EXPECT_EQ(slope_at("clamp(gate, -7, 7)", 7.0), 1.0);
  EXPECT_EQ(slope_at("clamp(gate, -7, 7)", -7.0), 1.0);
  EXPECT_EQ(slope_at("min(gate, 7)", 7.0), 1.0);
  EXPECT_EQ(slope_at("max(0, gate)", 0.0), 1.0);
  EXPECT_EQ(slope_at("min(gate, up)", 3.0, 3.0), 0.5);
  EXPECT_EQ(slope_at("max(gate, up)", 3.0, 3.0), 0.5);
  EXPECT_EQ(slope_at("max(2 * gate, up)", 3.0, 6.0), 1.0);
}

TEST(Differentiate, KeepsNan) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const char* formula : {"abs(gate)", "silu(min(gate, 7))", "relu(gate) * relu(gate)"})
    EXPECT_TRUE(std::isnan(slope_at(formula, nan))) << formula;
}

// A factor that is infinite where a value is clamped does not make 0 * infinity.
TEST(Differentiate, IsZeroWhereAValueIsClamped) {
  EXPECT_EQ(slope_at("exp(min(gate, 7)) * up", 800.0, 1e308), 0.0);
  EXPECT_EQ(slope_at("clamp(gate, -7, 7) / up", 8.0, 0.0), 0.0);
}

}  // namespace
}  // namespace moejit::compiler
