// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/expression.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

// A number in a preset's formula that a description may choose.
struct ActivationParameter {
  std::string name;
  double value = 0.0;
  bool operator==(const ActivationParameter&) const = default;
};

// Returns the formula silu(gate) * up.
Expression swiglu_formula();

// The function that makes one value of gate and up, or of up alone.
struct Activation {
  std::string preset = "swiglu";                // kOwnFormula if the description gives the formula
  std::vector<ActivationParameter> parameters;  // all parameters of the preset, in its order
  Expression formula = swiglu_formula();        // over the variables gate and up
  bool operator==(const Activation&) const = default;
};

// The preset name of activations given by a formula; kernels and listings use it too.
inline constexpr std::string_view kOwnFormula = "expression";

std::vector<std::string_view> preset_names();
// Returns what to write for a name of other libraries that is no preset here: the name of a preset,
// or a formula as {"expression": "..."}. Empty if nobody knows the name.
std::string spelling_of_other_name(std::string_view name);
// Returns the names of a preset's parameters; empty if there is no such preset.
std::vector<std::string_view> parameter_names(std::string_view preset);

// Makes an activation from a preset of preset_names(); parameters that are not chosen get their
// defaults. Error kInvalidValue: a name that the preset does not have, or a number that its formula
// cannot take.
Result<Activation> make_activation(std::string_view preset,
                                   std::span<const ActivationParameter> chosen = {});

// Reads an activation from a formula over gate and up. Errors: as of parse_expression(), and
// kInvalidValue for a formula that uses neither variable.
Result<Activation> parse_activation(std::string_view formula);

// Returns whether the formula mentions the gate. If it does, w1 has rows for gate and for up, else
// for up alone.
bool has_gate(const Activation& activation);

// Returns the activation in one word: "swiglu", "clamped_swiglu(limit=7,alpha=1.702,offset=1)",
// "expression(tanh(gate)*up)".
std::string to_string(const Activation& activation);

// Returns the value of a description's "activation". It is a string with a preset's name, an object
// with a preset and chosen numbers, or an object with a formula.
std::string to_json(const Activation& activation);

// The gradients that the backward pass computes, before the multiplication with the row's
// probability. Their variables are gate, up, `gradient` (the gradient of the activation's result)
// and `dprob` (a sum so far). Kernels round in the order of these trees.
struct ActivationGradients {
  Expression gate;  // 0 if there is no gate
  Expression up;
  Expression dprob;  // dprob + gradient * formula; the last product and the sum are rounded once
};
ActivationGradients gradients_of(const Activation& activation);

// Return whether the value is +0 where gate and up are 0, and whether the gradients are 0 where
// `gradient` is 0 as well. If so, the zeros outside of rows need no special case.
bool has_zero_value_at_zero(const Activation& activation);
bool has_zero_gradients_at_zero(const Activation& activation);

}  // namespace moejit::compiler
