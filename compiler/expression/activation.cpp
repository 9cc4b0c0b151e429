// SPDX-License-Identifier: Apache-2.0
#include "compiler/activation.h"

#include "compiler/support/json_text.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <numeric>

namespace moejit::compiler {
namespace {

struct Parameter {
  std::string_view name;
  double value;
  bool is_positive;  // whether the number must be positive
};

struct Preset {
  std::string_view name;
  std::string_view formula;  // over gate, up and the parameters
  std::span<const Parameter> parameters;
};

// The defaults of gpt-oss.
constexpr std::array kClampedParameters = std::to_array<Parameter>({
    {"limit", 7.0, true},
    {"alpha", 1.702, false},
    {"offset", 1.0, false},
});

constexpr std::array kPresets = std::to_array<Preset>({
    {"swiglu", "silu(gate) * up", {}},
    {"clamped_swiglu",
     "min(gate, limit) * sigmoid(alpha * min(gate, limit)) * (clamp(up, -limit, limit) + offset)",
     kClampedParameters},
    {"geglu", "gelu(gate) * up", {}},
    {"quick_geglu", "quick_gelu(gate) * up", {}},
    {"relu_squared", "relu(up) * relu(up)", {}},
});

// Names that users of other libraries will try, and what is meant: a formula, or a preset. A name
// that becomes a preset goes from here to the table above.
struct OtherName {
  std::string_view name;
  std::string_view formula;
  std::string_view preset = {};
};
constexpr std::array kOtherNames = std::to_array<OtherName>({
    {"reglu", "relu(gate) * up"},
    {"glu", "sigmoid(gate) * up"},
    {"geglu_tanh", "gelu_tanh(gate) * up"},
    {"silu", "silu(up)"},
    {"gelu", "gelu(up)"},
    {"relu", "relu(up)"},
    {"swiglu_oai", {}, "clamped_swiglu"},
    {"relu2", {}, "relu_squared"},
    {"squared_relu", {}, "relu_squared"},
});
static_assert(std::ranges::none_of(kOtherNames,
                                   [](const OtherName& other) {
                                     return std::ranges::count(kPresets, other.name,
                                                               &Preset::name) > 0;
                                   }),
              "a preset is also among the names that are refused");

constexpr std::array<std::string_view, 2> kVariables = {"gate", "up"};

const Preset* find_preset(std::string_view name) {
  const auto found = std::ranges::find(kPresets, name, &Preset::name);
  return found == kPresets.end() ? nullptr : &*found;
}

tl::unexpected<Error> refuse(std::string what, std::string hint = {}) {
  return fail(Stage::kParse, ErrorCode::kInvalidValue, std::move(what), std::move(hint));
}

bool has_variable(const Expression& e, std::string_view name) {
  return e.name() == name || std::ranges::any_of(e.operands(), [&](const Expression& operand) {
           return has_variable(operand, name);
         });
}

}  // namespace

Expression swiglu_formula() {
  static const Expression formula =
      Expression::make(Operator::kSilu, {Expression::variable("gate")}) *
      Expression::variable("up");
  return formula;
}

std::vector<std::string_view> preset_names() {
  std::vector<std::string_view> names;
  for (const Preset& preset : kPresets) names.push_back(preset.name);
  return names;
}

std::string spelling_of_other_name(std::string_view name) {
  const auto other = std::ranges::find(kOtherNames, name, &OtherName::name);
  if (other == kOtherNames.end()) return {};
  return other->preset.empty() ? fmt::format("{{\"expression\": \"{}\"}}", other->formula)
                               : std::string(other->preset);
}

std::vector<std::string_view> parameter_names(std::string_view name) {
  std::vector<std::string_view> names;
  if (const Preset* preset = find_preset(name))
    for (const Parameter& parameter : preset->parameters) names.push_back(parameter.name);
  return names;
}

Result<Activation> make_activation(std::string_view name,
                                   std::span<const ActivationParameter> chosen) {
  const Preset* const preset = find_preset(name);
  if (preset == nullptr)
    return refuse(
        fmt::format("got the preset {}, wanted one of {}", name, fmt::join(preset_names(), ", ")));
  Activation activation{.preset = std::string(name)};
  FormulaNames names{.variables = {kVariables.begin(), kVariables.end()}};
  for (const Parameter& parameter : preset->parameters) {
    const auto given = std::ranges::find(chosen, parameter.name, &ActivationParameter::name);
    const double value = given == chosen.end() ? parameter.value : given->value;
    if (std::fabs(value) > double{FLT_MAX})
      return refuse(fmt::format("got {} for {}, wanted a number of fp32", value, parameter.name),
                    fmt::format("the default is {}", parameter.value));
    if (parameter.is_positive && !(static_cast<float>(value) > 0.0F))
      return refuse(fmt::format("got {} for {}, wanted a number above 0", value, parameter.name),
                    fmt::format("the default is {}", parameter.value));
    activation.parameters.push_back({std::string(parameter.name), value});
    names.constants.emplace(parameter.name, value);
  }
  for (const ActivationParameter& parameter : chosen)
    if (!names.constants.contains(parameter.name))
      return refuse(fmt::format("{} has no parameter {}", name, parameter.name));
  MOEJIT_TRY_ASSIGN(const Expression formula, parse_expression(preset->formula, names));
  activation.formula = simplify(formula);
  return activation;
}

Result<Activation> parse_activation(std::string_view text) {
  MOEJIT_TRY_ASSIGN(Expression formula,
                    parse_expression(text, {.variables = {kVariables.begin(), kVariables.end()}}));
  if (!has_variable(formula, "gate") && !has_variable(formula, "up"))
    return refuse("got a formula of neither gate nor up",
                  "a formula is over gate and up, such as \"silu(gate) * up\"");
  return Activation{
      .preset = std::string(kOwnFormula), .parameters = {}, .formula = std::move(formula)};
}

bool has_gate(const Activation& activation) { return has_variable(activation.formula, "gate"); }

std::string to_string(const Activation& activation) {
  std::string inside;
  if (activation.preset == kOwnFormula) {
    inside = to_string(activation.formula);
    std::erase(inside, ' ');
  }
  for (const ActivationParameter& parameter : activation.parameters)
    inside += fmt::format("{}{}={}", inside.empty() ? "" : ",", parameter.name, parameter.value);
  return inside.empty() ? activation.preset : fmt::format("{}({})", activation.preset, inside);
}

namespace {

// The variables of gradient formulas.
struct Variables {
  Expression gate = Expression::variable("gate");
  Expression up = Expression::variable("up");
  Expression gradient = Expression::variable("gradient");
  Expression dprob = Expression::variable("dprob");
};

Expression fma(const Expression& a, const Expression& b, const Expression& c) {
  return simplified(Operator::kFma, {a, b, c});
}

// Returns the gradients of swiglu. Let s be the sigmoid of the gate, d = gradient * s and u = d *
// gate. Then the gradient of up is u, and the gradient of the gate is (u * (1 - s) + d) * up. This
// takes one product less than separate derivatives, and u is the gradient of the probability except
// for a factor up.
ActivationGradients swiglu_gradients(const Variables& of) {
  const Expression s = Expression::make(Operator::kSigmoid, {of.gate});
  const Expression d = of.gradient * s;
  const Expression u = d * of.gate;
  return {.gate = fma(u, 1.0 - s, d) * of.up, .up = u, .dprob = fma(u, of.up, of.dprob)};
}

// Returns gradient * value + dprob. If a value is a product itself, the product of the gradient
// with its first factor is the gradient of its second factor. That gradient is often needed anyway.
Expression add_to_dprob(const Variables& of, const Expression& value) {
  if (value.op() != Operator::kMultiply) return fma(of.gradient, value, of.dprob);
  return fma(of.gradient * value.operands()[0], value.operands()[1], of.dprob);
}

}  // namespace

ActivationGradients gradients_of(const Activation& activation) {
  const Variables of;
  const Expression value = simplify(expand(activation.formula));
  if (value == simplify(expand(swiglu_formula()))) return swiglu_gradients(of);
  return {.gate = of.gradient * differentiate(value, "gate"),
          .up = of.gradient * differentiate(value, "up"),
          .dprob = add_to_dprob(of, value)};
}

namespace {

// Returns whether the value at 0 is 0. It computes in double, which gives 0 exactly where fp32 does
// if no step leaves fp32's range.
bool is_zero_at_zero(const Expression& expression) {
  StraightLine code = straight_line({&expression, 1});
  const auto result = static_cast<std::size_t>(code.results.front());
  code.results.resize(code.assignments.size());
  std::iota(code.results.begin(), code.results.end(), 0);
  const std::vector<double> values =
      evaluate(code, {{"gate", 0.0}, {"up", 0.0}, {"gradient", 0.0}, {"dprob", 0.0}});
  return values[result] == 0.0 && !std::signbit(values[result]) &&
         std::ranges::all_of(values,
                             [](double value) { return std::fabs(value) <= double{FLT_MAX}; });
}

}  // namespace

std::string to_json(const Activation& activation) {
  if (activation.preset == kOwnFormula)
    return fmt::format("{{\"expression\": {}}}", json_string(to_string(activation.formula)));
  if (activation.parameters.empty()) return json_string(activation.preset);
  std::string members = fmt::format("\"preset\": {}", json_string(activation.preset));
  for (const ActivationParameter& parameter : activation.parameters)
    members += fmt::format(", \"{}\": {}", parameter.name, parameter.value);
  return fmt::format("{{{}}}", members);
}

bool has_zero_value_at_zero(const Activation& activation) {
  return is_zero_at_zero(activation.formula);
}

bool has_zero_gradients_at_zero(const Activation& activation) {
  const ActivationGradients of = gradients_of(activation);
  return is_zero_at_zero(of.gate) && is_zero_at_zero(of.up) && is_zero_at_zero(of.dprob);
}

}  // namespace moejit::compiler
