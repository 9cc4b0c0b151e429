// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/expression.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

// A number of a preset's formula that a description may choose.
struct ActivationParameter {
  std::string name;
  double value = 0.0;
  bool operator==(const ActivationParameter&) const = default;
};

// silu(gate) * up
Expression swiglu_formula();

// What makes one value of those of gate and up; swiglu unless said otherwise.
struct Activation {
  std::string preset = "swiglu";                // kOwnFormula: the description gives the formula
  std::vector<ActivationParameter> parameters;  // all that the preset has, in its order
  Expression formula = swiglu_formula();        // of the variables gate and up
  bool operator==(const Activation&) const = default;
};

// The preset of activations without one; what kernels and listings call them.
inline constexpr std::string_view kOwnFormula = "expression";

std::vector<std::string_view> preset_names();
// Names of a preset's parameters; empty where there is no such preset.
std::vector<std::string_view> parameter_names(std::string_view preset);

// A preset of preset_names() with some of its parameters chosen and defaults for the others.
// kInvalidValue: a name that it does not have, or a number that its formula cannot take.
Result<Activation> make_activation(std::string_view preset,
                                   std::span<const ActivationParameter> chosen = {});

// An activation of a formula over gate and up; errors of parse_expression(), and kInvalidValue
// for a formula of neither.
Result<Activation> parse_activation(std::string_view formula);

// Whether the formula mentions the gate: then there are gate and up, each with its rows of w1, else
// up alone.
bool has_gate(const Activation& activation);

// In one word: "swiglu", "clamped_swiglu(limit=7,alpha=1.702,offset=1)",
// "expression(tanh(gate)*up)".
std::string to_string(const Activation& activation);

// Returns the value of a description's "activation": a preset's name as a string, or an object of
// one with numbers of its own, or of a formula.
std::string to_json(const Activation& activation);

// What the backward pass computes, over gate, up, `gradient` (that of the activation's result) and
// `dprob` (a sum so far), before anything is multiplied with the row's probability. The order of
// roundings is that of the trees.
struct ActivationGradients {
  Expression gate;  // 0 without a gate
  Expression up;
  Expression dprob;  // dprob + gradient * formula, the last product and the sum rounded once
};
ActivationGradients gradients_of(const Activation& activation);

// Whether the value is +0 where gate and up are, and the gradients where their own is 0 as well.
// What lies outside of rows has zeros, and needs no attention then.
bool has_zero_value_at_zero(const Activation& activation);
bool has_zero_gradients_at_zero(const Activation& activation);

}  // namespace moejit::compiler
