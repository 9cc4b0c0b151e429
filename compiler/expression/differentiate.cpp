// SPDX-License-Identifier: Apache-2.0
#include "compiler/expression.h"

#include <numbers>
#include <unordered_map>

namespace moejit::compiler {
namespace {

Expression where_less(const Expression& a, const Expression& b, const Expression& then,
                      const Expression& otherwise) {
  return simplified(Operator::kWhereLess, {a, b, then, otherwise});
}

Expression exp_of_minus_square(const Expression& x) {
  return simplified(Operator::kExp, {-(x * x)});
}

class Derivative {
 public:
  explicit Derivative(std::string_view variable) : variable_(variable) {}

  Expression of(const Expression& e) {
    if (const auto known = done_.find(e.identity()); known != done_.end()) return known->second;
    return done_.emplace(e.identity(), compute(e)).first->second;
  }

 private:
  Expression compute(const Expression& e) {
    const std::vector<Expression>& x = e.operands();
    switch (e.op()) {
      case Operator::kNumber: return 0.0;
      case Operator::kVariable: return e.name() == variable_ ? 1.0 : 0.0;
      case Operator::kNegate: return -of(x[0]);
      case Operator::kAdd: return of(x[0]) + of(x[1]);
      case Operator::kSubtract: return of(x[0]) - of(x[1]);
      case Operator::kMultiply: return of(x[0]) * x[1] + x[0] * of(x[1]);
      case Operator::kDivide: return (of(x[0]) - e * of(x[1])) / x[1];
      case Operator::kFma: return of(x[0]) * x[1] + x[0] * of(x[1]) + of(x[2]);
      case Operator::kWhereLess:
      case Operator::kWhereLessEqual: return simplified(e.op(), {x[0], x[1], of(x[2]), of(x[3])});
      case Operator::kMin: return of_smaller(x[0], x[1], x[0], x[1]);
      case Operator::kMax: return of_smaller(x[1], x[0], x[0], x[1]);
      default: return slope(e, x[0]) * of(x[0]);
    }
  }

  // Returns the derivative of a choice: of `a` if `low` is less than `high`, of `b` if it is more.
  Expression of_smaller(const Expression& low, const Expression& high, const Expression& a,
                        const Expression& b) {
    if (b.is_number()) return where_less(high, low, 0.0, of(a));
    if (a.is_number()) return where_less(low, high, 0.0, of(b));
    return where_less(low, high, of(a), where_less(high, low, of(b), 0.5 * (of(a) + of(b))));
  }

  // Returns the slope of a function of one operand.
  static Expression slope(const Expression& f, const Expression& x) {
    switch (f.op()) {
      case Operator::kRelu: return simplified(Operator::kWhereLessEqual, {x, 0.0, 0.0, 1.0});
      // At 0 this is the operand itself: 0, or NaN if it is NaN.
      case Operator::kAbs: return where_less(x, 0.0, -1.0, where_less(0.0, x, 1.0, x));
      case Operator::kSigmoid: return f * (1.0 - f);
      case Operator::kTanh: return 1.0 - f * f;
      case Operator::kExp: return f;
      case Operator::kLog: return 1.0 / x;
      case Operator::kSqrt: return 0.5 / f;
      case Operator::kErf: return 2.0 * std::numbers::inv_sqrtpi * exp_of_minus_square(x);
      case Operator::kErfc: return -2.0 * std::numbers::inv_sqrtpi * exp_of_minus_square(x);
      default: return 0.0;  // expand() leaves no others
    }
  }

  std::string_view variable_;
  std::unordered_map<const void*, Expression> done_;
};

}  // namespace

Expression differentiate(const Expression& expression, std::string_view variable) {
  // Kept as long as the table of derivatives, whose keys are addresses of its nodes.
  const Expression expanded = simplify(expand(expression));
  return Derivative(variable).of(expanded);
}

}  // namespace moejit::compiler
