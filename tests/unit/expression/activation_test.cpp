// SPDX-License-Identifier: Apache-2.0
#include "compiler/activation.h"

#include <cmath>
#include <gtest/gtest.h>

namespace moejit::compiler {
namespace {

Activation preset(std::string_view name) { return make_activation(name).value(); }

TEST(ActivationPresets, HaveTheirFormulas) {
  const auto text = [](std::string_view name) { return to_string(preset(name).formula); };
  EXPECT_EQ(text("swiglu"), "silu(gate) * up");
  EXPECT_EQ(text("clamped_swiglu"),
            "min(gate, 7) * sigmoid(1.702 * min(gate, 7)) * (clamp(up, -7, 7) + 1)");
  EXPECT_EQ(text("geglu"), "gelu(gate) * up");
  EXPECT_EQ(text("quick_geglu"), "quick_gelu(gate) * up");
  EXPECT_EQ(text("relu_squared"), "relu(up) * relu(up)");
  EXPECT_EQ(preset_names().size(), 5u);
}

TEST(ActivationPresets, TakeParameters) {
  const std::vector<ActivationParameter> chosen = {{"offset", 0.0}, {"limit", 10.0}};
  const Activation activation = make_activation("clamped_swiglu", chosen).value();
  EXPECT_EQ(to_string(activation.formula),
            "min(gate, 10) * sigmoid(1.702 * min(gate, 10)) * clamp(up, -10, 10)");
  EXPECT_EQ(to_string(activation), "clamped_swiglu(limit=10,alpha=1.702,offset=0)");
}

TEST(ActivationPresets, RefuseWhatTheirFormulaCannotTake) {
  const auto error_of = [](std::string_view name, double value) {
    const std::vector<ActivationParameter> chosen = {{std::string(name), value}};
    const Result<Activation> activation = make_activation("clamped_swiglu", chosen);
    return activation ? std::string() : activation.error().message;
  };
  EXPECT_EQ(error_of("limit", 0.0), "got 0 for limit, wanted a number above 0");
  EXPECT_EQ(error_of("limit", 1e-50), "got 1e-50 for limit, wanted a number above 0");
  EXPECT_EQ(error_of("limit", -1.0), "got -1 for limit, wanted a number above 0");
  EXPECT_EQ(error_of("alpha", 1e39), "got 1e+39 for alpha, wanted a number of fp32");
  EXPECT_EQ(error_of("slope", 1.0), "clamped_swiglu has no parameter slope");
  EXPECT_FALSE(make_activation("swish"));
}

TEST(Activation, IsSwigluUnlessSaidOtherwise) { EXPECT_EQ(Activation{}, preset("swiglu")); }

TEST(Activation, TakesAFormulaOfGateAndUp) {
  const Activation activation = parse_activation("tanh(gate) * up").value();
  EXPECT_EQ(activation.preset, kOwnFormula);
  EXPECT_EQ(to_string(activation), "expression(tanh(gate)*up)");
  EXPECT_FALSE(parse_activation("1 + 2"));
  EXPECT_FALSE(parse_activation("gradient * up"));
}

TEST(Activation, OfReluSquaredHasNoGate) {
  EXPECT_FALSE(has_gate(preset("relu_squared")));
  EXPECT_TRUE(has_gate(preset("swiglu")));
  EXPECT_FALSE(has_gate(parse_activation("relu(up) * relu(up)").value()));
  EXPECT_TRUE(has_gate(parse_activation("silu(gate)").value()));
}

TEST(Activation, OfZerosIsZeroButForSomeFormulas) {
  for (const std::string_view name : preset_names()) {
    EXPECT_TRUE(has_zero_value_at_zero(preset(name))) << name;
    EXPECT_TRUE(has_zero_gradients_at_zero(preset(name))) << name;
  }
  const auto expect = [](const char* formula, bool value, bool gradients) {
    const Activation activation = parse_activation(formula).value();
    EXPECT_EQ(has_zero_value_at_zero(activation), value) << formula;
    EXPECT_EQ(has_zero_gradients_at_zero(activation), gradients) << formula;
  };
  expect("tanh(gate) * up", true, true);
  expect("exp(gate) + up", false, true);
  expect("sqrt(abs(gate)) * up", true, false);  // 0 / 0
  expect("log(abs(gate)) * up", false, false);
  expect("-gate * up", false, false);            // -0
  expect("exp(100 + gate) * up", false, false);  // infinity * 0 in fp32
}

// The order of roundings that kernels and recipes.md have.
TEST(ActivationGradients, OfSwigluKeepTheirOrderOfRoundings) {
  for (const Activation& activation :
       {preset("swiglu"), parse_activation("silu(gate) * up").value(),
        parse_activation("gate * sigmoid(gate) * up").value()}) {
    const ActivationGradients of = gradients_of(activation);
    EXPECT_EQ(to_string(of.up), "gradient * sigmoid(gate) * gate");
    EXPECT_EQ(to_string(of.gate),
              "fma(gradient * sigmoid(gate) * gate, 1 - sigmoid(gate), gradient * sigmoid(gate)) "
              "* up");
    EXPECT_EQ(to_string(of.dprob), "fma(gradient * sigmoid(gate) * gate, up, dprob)");
  }
}

TEST(ActivationGradients, ComputeTheSigmoidOnce) {
  for (const char* name : {"swiglu", "clamped_swiglu", "quick_geglu"}) {
    const ActivationGradients of = gradients_of(preset(name));
    const StraightLine code = straight_line(std::vector{of.gate, of.up, of.dprob});
    int count = 0;
    for (const Assignment& assignment : code.assignments)
      count += assignment.op == Operator::kSigmoid ? 1 : 0;
    EXPECT_EQ(count, 1) << name;
  }
}

// Gradients by hand and derivatives by rule: both in double, of a few dozen roundings at most.
TEST(ActivationGradients, AreTheDerivativesTimesTheGradient) {
  for (const char* name : {"swiglu", "clamped_swiglu", "geglu", "quick_geglu", "relu_squared"}) {
    const Activation activation = preset(name);
    const ActivationGradients of = gradients_of(activation);
    for (const double gate : {-9.0, -1.5, 0.0, 0.75, 6.5, 8.0})
      for (const double up : {-8.0, -1.25, 0.5, 7.0}) {
        const double gradient = -1.5, dprob = 0.25;
        const Values at = {{"gate", gate}, {"up", up}, {"gradient", gradient}, {"dprob", dprob}};
        const auto expect_near = [&](const Expression& got, double wanted) {
          EXPECT_NEAR(evaluate(got, at), wanted, 1e-13 * (1 + std::fabs(wanted)))
              << name << " at " << gate << ", " << up;
        };
        expect_near(of.gate, gradient * evaluate(differentiate(activation.formula, "gate"), at));
        expect_near(of.up, gradient * evaluate(differentiate(activation.formula, "up"), at));
        expect_near(of.dprob, dprob + gradient * evaluate(activation.formula, at));
      }
  }
}

}  // namespace
}  // namespace moejit::compiler
