// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"
#include "runtime/reference/activation.h"

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace moejit::testing {

// An activation as the compiler and as the reference have it; swiglu unless said otherwise.
struct ActivationCase {
  std::string name = "swiglu";
  compiler::Activation compiled = {};
  reference::GatedActivation reference = reference::swiglu_activation();
};

// exp(min(gate, 2)) * relu(up), derived by hand. exp is off by 2 units in the last place, two
// products by half of one each.
inline reference::GatedActivation exp_relu() {
  const auto left = [](double gate) { return std::exp(gate > 2.0 ? 2.0 : gate); };
  const auto relu = [](double x) { return x <= 0.0 ? 0.0 : x; };
  const auto value = [=](double gate, double up) { return left(gate) * relu(up); };
  return {.value = value,
          .fp32_value = [=](float gate, float up) { return static_cast<float>(value(gate, up)); },
          .gate_gradient =
              [=](double gate, double up, double gradient) {
                return gate > 2.0 ? 0.0 : gradient * left(gate) * relu(up);
              },
          .up_gradient = [=](double gate, double up,
                             double gradient) { return up <= 0.0 ? 0.0 : gradient * left(gate); },
          .value_error = [=](double gate, double up) { return 3 * 0x1p-23 * value(gate, up); }};
}

// log(abs(gate)) * up, which is no number where both are 0, as its derivatives; or log(abs(up)).
// logf is off by a unit in the last place, a product by half of one, and what is left is for the
// next.
inline reference::GatedActivation log_abs(bool has_gate) {
  const auto log_of = [=](double gate, double up) {
    return std::log(std::fabs(has_gate ? gate : up));
  };
  const auto value = [=](double gate, double up) {
    return log_of(gate, up) * (has_gate ? up : 1.0);
  };
  return {
      .value = value,
      .fp32_value = [=](float gate, float up) { return static_cast<float>(value(gate, up)); },
      .gate_gradient = [](double gate, double up, double gradient) { return gradient / gate * up; },
      .up_gradient =
          [=](double gate, double up, double gradient) {
            return has_gate ? gradient * log_of(gate, up) : gradient / up;
          },
      .value_error = [=](double gate, double up) { return 0x1p-22 * std::fabs(value(gate, up)); },
      .has_gate = has_gate};
}

// 1 / (gate * gate + 1e-4) + up, which is 10^4 where both are 0: far more than elsewhere. Its
// denominator is rounded twice, the quotient and the sum once each.
inline reference::GatedActivation spike() {
  const auto below = [](double gate) { return gate * gate + double{1e-4F}; };
  const auto value = [=](double gate, double up) { return 1.0 / below(gate) + up; };
  return {.value = value,
          .fp32_value = [=](float gate, float up) { return static_cast<float>(value(gate, up)); },
          .gate_gradient =
              [=](double gate, double, double gradient) {
                return -gradient * 2.0 * gate / (below(gate) * below(gate));
              },
          .up_gradient = [](double, double, double gradient) { return gradient; },
          .value_error = [=](double gate,
                             double up) { return 0x1p-22 * (1.0 / below(gate) + std::fabs(up)); }};
}

// Returns activations that do not make zeros of zeros.
inline std::vector<ActivationCase> cases_not_zero_at_zero() {
  const auto formula = [](const char* text) { return compiler::parse_activation(text).value(); };
  return {{"log(abs(gate)) * up", formula("log(abs(gate)) * up"), log_abs(true)},
          {"log(abs(up))", formula("log(abs(up))"), log_abs(false)},
          {"1 / (gate * gate + 1e-4) + up", formula("1 / (gate * gate + 0.0001) + up"), spike()}};
}

// Returns activations of gate and up; whole layers are tested with the others.
inline std::vector<ActivationCase> activation_cases() {
  const auto preset = [](std::string_view name,
                         const std::vector<compiler::ActivationParameter>& chosen = {}) {
    return compiler::make_activation(name, chosen).value();
  };
  return {
      {"swiglu", preset("swiglu"), reference::swiglu_activation()},
      {"clamped_swiglu", preset("clamped_swiglu"), reference::clamped_swiglu_activation()},
      {"clamped_swiglu of other parameters",
       preset("clamped_swiglu", {{"limit", 0.75}, {"alpha", 1.0}, {"offset", 0.0}}),
       reference::clamped_swiglu_activation(0.75F, 1.0F, 0.0F)},
      {"geglu", preset("geglu"), reference::geglu_activation()},
      {"quick_geglu", preset("quick_geglu"), reference::quick_geglu_activation()},
      {"exp(min(gate, 2)) * relu(up)",
       compiler::parse_activation("exp(min(gate, 2)) * relu(up)").value(), exp_relu()},
  };
}

// Where activations have kinks, and beside that; where their functions saturate; and no numbers.
inline const std::array kKinkValues = std::to_array<float>(
    {0.0F, -0.0F, 0.75F, -0.75F, 0.7539F, 7.0F, -7.0F, 6.96875F, 7.03125F, -7.03125F, -1.0F, 20.0F,
     -20.0F, 104.0F, -104.0F, 0x1p-130F, std::numeric_limits<float>::quiet_NaN()});

}  // namespace moejit::testing
