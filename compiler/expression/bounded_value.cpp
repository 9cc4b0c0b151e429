// SPDX-License-Identifier: Apache-2.0
#include "compiler/expression.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace moejit::compiler {
namespace {

constexpr double kRounding = 0x1p-24;

BoundedValue larger_error(double value, const BoundedValue& a, const BoundedValue& b) {
  return {value, std::max(a.error, b.error)};
}

// Returns a function of x whose own error is `relative`, and whose slope is at most `slope` nearby.
BoundedValue function_value(double value, double slope, const BoundedValue& x, double relative) {
  return {value, std::fabs(slope) * x.error + relative * std::fabs(value)};
}

BoundedValue unary(Operator op, const BoundedValue& x) {
  constexpr double kLibrary = 2 * 0x1p-23;  // of exp, log, tanh and erf
  constexpr double kErfSlope = 2.0 * std::numbers::inv_sqrtpi;
  switch (op) {
    case Operator::kNegate: return {-x.value, x.error};
    case Operator::kAbs: return {std::fabs(x.value), x.error};
    case Operator::kRelu: return {x.value < 0.0 ? 0.0 : x.value, x.error};
    case Operator::kSigmoid: {
      const double s = 1.0 / (1.0 + std::exp(-x.value));
      return function_value(s, s * (1.0 - s), x, (1.0 + std::fabs(x.value) / 12.0) * 0x1p-20);
    }
    case Operator::kTanh: {
      const double t = std::tanh(x.value);
      return function_value(t, 1.0 - t * t, x, kLibrary);
    }
    case Operator::kExp: {
      const double e = std::exp(x.value);
      return function_value(e, e, x, kLibrary);
    }
    case Operator::kLog: return function_value(std::log(x.value), 1.0 / x.value, x, kLibrary);
    case Operator::kSqrt: {
      const double root = std::sqrt(x.value);
      return function_value(root, 0.5 / root, x, kRounding);
    }
    case Operator::kErf:
      return function_value(std::erf(x.value), kErfSlope * std::exp(-x.value * x.value), x,
                            kLibrary);
    case Operator::kErfc:
      return function_value(std::erfc(x.value), kErfSlope * std::exp(-x.value * x.value), x,
                            (2.0 + x.value * x.value / 4.0) * 0x1p-20);
    default: return {std::nan(""), 0.0};
  }
}

BoundedValue rounded(double value, double error) {
  return {value, error + kRounding * std::fabs(value)};
}

BoundedValue combined(Operator op, const std::vector<BoundedValue>& x) {
  switch (op) {
    case Operator::kAdd: return rounded(x[0].value + x[1].value, x[0].error + x[1].error);
    case Operator::kSubtract: return rounded(x[0].value - x[1].value, x[0].error + x[1].error);
    case Operator::kMultiply:
      return rounded(x[0].value * x[1].value,
                     std::fabs(x[0].value) * x[1].error + std::fabs(x[1].value) * x[0].error);
    case Operator::kDivide: {
      const double quotient = x[0].value / x[1].value;
      return rounded(quotient,
                     (x[0].error + std::fabs(quotient) * x[1].error) / std::fabs(x[1].value));
    }
    case Operator::kFma:
      return rounded(
          x[0].value * x[1].value + x[2].value,
          std::fabs(x[0].value) * x[1].error + std::fabs(x[1].value) * x[0].error + x[2].error);
    case Operator::kMin:
      return larger_error(x[1].value < x[0].value ? x[1].value : x[0].value, x[0], x[1]);
    case Operator::kMax:
      return larger_error(x[1].value > x[0].value ? x[1].value : x[0].value, x[0], x[1]);
    case Operator::kWhereLess:
    case Operator::kWhereLessEqual: {
      const bool is_less =
          op == Operator::kWhereLess ? x[0].value < x[1].value : x[0].value <= x[1].value;
      BoundedValue chosen = is_less ? x[2] : x[3];
      // The error may have taken the other branch.
      if (std::fabs(x[0].value - x[1].value) <= x[0].error + x[1].error)
        chosen.error += std::fabs(x[2].value - x[3].value) + std::max(x[2].error, x[3].error);
      return chosen;
    }
    default: return unary(op, x[0]);
  }
}

}  // namespace

BoundedValue evaluate_with_error(const StraightLine& code, const Values& variables) {
  std::vector<BoundedValue> values;
  for (const Assignment& assignment : code.assignments) {
    std::vector<BoundedValue> operands;
    for (const int32_t index : assignment.operands)
      operands.push_back(values[static_cast<size_t>(index)]);
    if (assignment.op == Operator::kNumber)
      values.push_back(rounded(assignment.number, 0.0));
    else if (assignment.op == Operator::kVariable)
      values.push_back({variables.at(assignment.name), 0.0});
    else
      values.push_back(combined(assignment.op, operands));
  }
  return values[static_cast<size_t>(code.results.front())];
}

}  // namespace moejit::compiler
