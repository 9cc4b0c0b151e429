// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/reference_activation.h"

#include <algorithm>
#include <cmath>
#include <memory>

namespace moejit::check {
namespace {

using compiler::Activation;

float parameter(const Activation& activation, std::string_view name) {
  const auto found =
      std::ranges::find(activation.parameters, name, &compiler::ActivationParameter::name);
  return found == activation.parameters.end() ? 0.0F : static_cast<float>(found->value);
}

// Returns the values of the variables of a formula.
compiler::Values values_at(double gate, double up) { return {{"gate", gate}, {"up", up}}; }

reference::GatedActivation of_formula(const Activation& activation) {
  const compiler::Expression& formula = activation.formula;
  const auto code_of = [](const compiler::Expression& e) {
    return std::make_shared<const compiler::StraightLine>(compiler::straight_line({&e, 1}));
  };
  const auto value = code_of(formula);
  const auto gate_slope = code_of(compiler::differentiate(formula, "gate"));
  const auto up_slope = code_of(compiler::differentiate(formula, "up"));
  const auto at = [](const auto& code, double gate, double up) {
    return compiler::evaluate(*code, values_at(gate, up)).front();
  };
  return {
      .value = [=](double gate, double up) { return at(value, gate, up); },
      .fp32_value = [=](float gate, float up) { return static_cast<float>(at(value, gate, up)); },
      .gate_gradient = [=](double gate, double up,
                           double gradient) { return gradient * at(gate_slope, gate, up); },
      .up_gradient = [=](double gate, double up,
                         double gradient) { return gradient * at(up_slope, gate, up); },
      .value_error =
          [=](double gate, double up) {
            const compiler::BoundedValue bounded =
                compiler::evaluate_with_error(*value, values_at(gate, up));
            // Doubles the first-order error to cover higher orders; adds the rounding of the
            // product with the gradient.
            return 2.0 * bounded.error + 0x1p-24 * std::fabs(bounded.value);
          },
      .has_gate = compiler::has_gate(activation)};
}

}  // namespace

reference::GatedActivation reference_of(const Activation& activation) {
  if (activation.preset == "swiglu") return reference::swiglu_activation();
  if (activation.preset == "geglu") return reference::geglu_activation();
  if (activation.preset == "quick_geglu") return reference::quick_geglu_activation();
  if (activation.preset == "clamped_swiglu")
    return reference::clamped_swiglu_activation(parameter(activation, "limit"),
                                                parameter(activation, "alpha"),
                                                parameter(activation, "offset"));
  if (activation.preset == "relu_squared") return reference::relu_squared_activation();
  return of_formula(activation);
}

}  // namespace moejit::check
