// SPDX-License-Identifier: Apache-2.0
// Replaces functions that abbreviate others. Functions around the sigmoid become products with it,
// which keeps the relative error small on both sides. gelu uses erfc, whose values do not cancel if
// the result is small.

#include "compiler/expression.h"

#include <numbers>
#include <unordered_map>

namespace moejit::compiler {
namespace {

Expression times_sigmoid(const Expression& x, const Expression& argument) {
  return Expression::make(Operator::kMultiply,
                          {x, Expression::make(Operator::kSigmoid, {argument})});
}

// 0.5 * (1 + tanh(z)) is sigmoid(2 * z), with z = sqrt(2 / pi) * (x + 0.044715 * x^3).
Expression gelu_tanh(const Expression& x) {
  const double kTwiceSqrtTwoOverPi = 2.0 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  return times_sigmoid(x, kTwiceSqrtTwoOverPi * (x + 0.044715 * (x * x * x)));
}

// x * (1 + erf(x / sqrt(2))) / 2
Expression gelu(const Expression& x) {
  return 0.5 * x * Expression::make(Operator::kErfc, {x * (-0.5 * std::numbers::sqrt2)});
}

Expression expanded(Operator op, std::vector<Expression> x) {
  switch (op) {
    case Operator::kSilu: return times_sigmoid(x[0], x[0]);
    case Operator::kGelu: return gelu(x[0]);
    case Operator::kGeluTanh: return gelu_tanh(x[0]);
    case Operator::kQuickGelu: return times_sigmoid(x[0], 1.702 * x[0]);
    case Operator::kClamp:
      return Expression::make(Operator::kMin,
                              {Expression::make(Operator::kMax, {x[0], x[1]}), x[2]});
    default: return Expression::make(op, std::move(x));
  }
}

class Expander {
 public:
  Expression run(const Expression& e) {
    if (e.operands().empty()) return e;
    if (const auto known = done_.find(e.identity()); known != done_.end()) return known->second;
    std::vector<Expression> operands;
    for (const Expression& operand : e.operands()) operands.push_back(run(operand));
    return done_.emplace(e.identity(), expanded(e.op(), std::move(operands))).first->second;
  }

 private:
  std::unordered_map<const void*, Expression> done_;
};

}  // namespace

Expression expand(const Expression& expression) { return Expander().run(expression); }

}  // namespace moejit::compiler
