// SPDX-License-Identifier: Apache-2.0
#include "compiler/emitter/emitter.h"

#include <fmt/core.h>

namespace moejit::compiler {
namespace {

// Returns the device function of an operator that has one.
std::string_view function_of(Operator op) {
  switch (op) {
    case Operator::kMultiply: return "ptx::multiply";
    case Operator::kDivide: return "ptx::divide";
    case Operator::kFma: return "ptx::fused_multiply_add";
    case Operator::kMin: return "ptx::min_or_nan";
    case Operator::kMax: return "ptx::max_or_nan";
    case Operator::kAbs: return "ptx::absolute";
    case Operator::kSigmoid: return "sigmoid";
    case Operator::kTanh: return "ptx::hyperbolic_tangent";
    case Operator::kExp: return "ptx::exponential";
    case Operator::kLog: return "ptx::natural_logarithm";
    case Operator::kSqrt: return "ptx::square_root";
    case Operator::kErf: return "ptx::error_function";
    case Operator::kErfc: return "complementary_error_function";
    default: return "";
  }
}

// A second minus needs parentheses, since "--" is an operator.
std::string negated(const std::string& text) {
  return text.starts_with('-') ? fmt::format("-({})", text) : "-" + text;
}

// Returns the text of an assignment's value, from the texts of its operands.
std::string value_text(Operator op, const std::vector<std::string>& x) {
  switch (op) {
    case Operator::kNegate: return negated(x[0]);
    case Operator::kAdd: return fmt::format("ptx::add({}, {})", x[0], x[1]);
    case Operator::kSubtract: return fmt::format("ptx::add({}, {})", x[0], negated(x[1]));
    case Operator::kWhereLess: return fmt::format("{} < {} ? {} : {}", x[0], x[1], x[2], x[3]);
    case Operator::kWhereLessEqual:
      return fmt::format("{} <= {} ? {} : {}", x[0], x[1], x[2], x[3]);
    case Operator::kRelu: return fmt::format("ptx::max_or_nan({}, 0.0f)", x[0]);
    default: break;
  }
  std::string arguments;
  for (const std::string& operand : x) arguments += (arguments.empty() ? "" : ", ") + operand;
  return fmt::format("{}({})", function_of(op), arguments);
}

// The lines of a function body, and the text of each result.
struct Body {
  std::string lines;
  std::vector<std::string> results;
};

Body body_of(const StraightLine& code) {
  Body body;
  std::vector<std::string> texts;
  int count = 0;
  for (const Assignment& assignment : code.assignments) {
    if (assignment.op == Operator::kNumber) {
      texts.push_back(float_literal(assignment.number));
      continue;
    }
    if (assignment.op == Operator::kVariable) {
      texts.push_back(assignment.name);
      continue;
    }
    std::vector<std::string> operands;
    for (const int32_t index : assignment.operands)
      operands.push_back(texts[static_cast<size_t>(index)]);
    texts.push_back(fmt::format("t{}", ++count));
    body.lines += fmt::format("    const float {} = {};\n", texts.back(),
                              value_text(assignment.op, operands));
  }
  for (const int32_t index : code.results)
    body.results.push_back(texts[static_cast<size_t>(index)]);
  return body;
}

std::string type_text(const Activation& activation, std::string_view functions,
                      bool is_zero_at_zero) {
  return fmt::format(
      "// {}\nstruct Activation {{\n  static constexpr bool kIsZeroAtZero = {};\n{}}};\n",
      to_string(activation.formula), is_zero_at_zero, functions);
}

// Returns the parameter for the gate; empty for functions of up only.
std::string_view gate_parameter(const Activation& activation) {
  return has_gate(activation) ? "float gate, " : "";
}

std::string value_function(const Activation& activation) {
  const Body body = body_of(straight_line({&activation.formula, 1}));
  return fmt::format(
      "  MOEJIT_DEVICE static float value({}float up) {{\n"
      "{}    return {};\n  }}\n",
      gate_parameter(activation), body.lines, body.results[0]);
}

std::string gradients_function(const Activation& activation) {
  const ActivationGradients of = gradients_of(activation);
  const Body body = body_of(straight_line(std::vector<Expression>{of.gate, of.up, of.dprob}));
  return fmt::format(
      "  MOEJIT_DEVICE static ActivationGradients gradients({}float up, "
      "float gradient,\n"
      "                                                     float dprob) {{\n"
      "{}    return {{.gate = {}, .up = {}, .dprob = {}}};\n  }}\n",
      gate_parameter(activation), body.lines, body.results[0], body.results[1], body.results[2]);
}

}  // namespace

std::string float_literal(double number) {
  std::string text = fmt::format("{}", static_cast<float>(number));
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text + "f";
}

std::string function_text(std::string_view name, std::string_view parameter,
                          const Expression& result) {
  const Body body = body_of(straight_line({&result, 1}));
  return fmt::format("  MOEJIT_DEVICE static float {}(float {}) {{\n{}    return {};\n  }}\n", name,
                     parameter, body.lines, body.results[0]);
}

std::string value_type_text(const Activation& activation) {
  return type_text(activation, value_function(activation), has_zero_value_at_zero(activation));
}

std::string gradients_type_text(const Activation& activation) {
  return type_text(activation, gradients_function(activation),
                   has_zero_gradients_at_zero(activation));
}

std::string value_and_gradients_type_text(const Activation& activation) {
  return type_text(activation, value_function(activation) + gradients_function(activation),
                   has_zero_value_at_zero(activation) && has_zero_gradients_at_zero(activation));
}

}  // namespace moejit::compiler
