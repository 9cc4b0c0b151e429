// SPDX-License-Identifier: Apache-2.0
// Replaces functions that abbreviate others. Functions around the sigmoid become products with it,
// which keeps the relative error small on both sides. gelu uses erfc, whose values do not cancel if
// the result is small.
#include "compiler/expression.h"
#include "compiler/expression/functions.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <numbers>
#include <optional>
#include <unordered_map>

namespace moejit::compiler {
namespace {

bool is_where(const Expression& e) {
  return e.op() == Operator::kWhereLess || e.op() == Operator::kWhereLessEqual;
}

// Returns the value of an operation on numbers. Returns none if it is not a finite number of fp32;
// then the operation stays as it was written.
std::optional<Expression> folded(Operator op, const std::vector<Expression>& operands) {
  std::vector<double> numbers;
  for (const Expression& operand : operands) {
    if (!operand.is_number()) return std::nullopt;
    numbers.push_back(operand.number());
  }
  const double value = compute(op, numbers);
  if (!(std::fabs(value) <= double{FLT_MAX})) return std::nullopt;
  return value;
}

// Joins sums such as where(c, 0, a) + where(c, 0, b), in which one condition makes both values 0.
std::optional<Expression> joined(Operator op, const Expression& a, const Expression& b) {
  if (!is_where(a) || a.op() != b.op()) return std::nullopt;
  const std::vector<Expression>&x = a.operands(), &y = b.operands();
  const auto is_zero_in = [&](int branch) {
    return x[branch].is_number(0.0) && y[branch].is_number(0.0);
  };
  if (x[0] != y[0] || x[1] != y[1] || (!is_zero_in(2) && !is_zero_in(3))) return std::nullopt;
  return simplified(a.op(),
                    {x[0], x[1], simplified(op, {x[2], y[2]}), simplified(op, {x[3], y[3]})});
}

bool has_zero_branch(const Expression& e) {
  return is_where(e) && (e.operands()[2].is_number(0.0) || e.operands()[3].is_number(0.0));
}

// Applies `change` to both branches. Zero stays zero beside factors that are infinite or NaN, if
// its branch is taken.
template <typename Change>
Expression into_branches(const Expression& where, Change change) {
  const std::vector<Expression>& of = where.operands();
  return simplified(where.op(), {of[0], of[1], change(of[2]), change(of[3])});
}

// Simplifies products with 0, 1 and -1.
std::optional<Expression> trivial_product(const Expression& a, const Expression& b) {
  if (a.is_number(0.0) || b.is_number(0.0)) return 0.0;
  if (a.is_number(1.0)) return b;
  if (b.is_number(1.0)) return a;
  if (a.is_number(-1.0)) return -b;
  if (b.is_number(-1.0)) return -a;
  return std::nullopt;
}

std::optional<Expression> simpler_product(const Expression& a, const Expression& b) {
  if (std::optional<Expression> product = trivial_product(a, b)) return product;
  if (has_zero_branch(a)) return into_branches(a, [&](const Expression& x) { return x * b; });
  if (has_zero_branch(b)) return into_branches(b, [&](const Expression& x) { return a * x; });
  return std::nullopt;
}

std::optional<Expression> simpler_quotient(const Expression& a, const Expression& b) {
  if (b.is_number(1.0)) return a;
  if (a.is_number(0.0) && !b.is_number(0.0)) return 0.0;
  if (has_zero_branch(a)) return into_branches(a, [&](const Expression& x) { return x / b; });
  int exponent = 0;
  const bool is_power_of_two = b.is_number() && std::fabs(std::frexp(b.number(), &exponent)) == 0.5;
  // The reciprocal is a power of two as well, and normal in fp32.
  if (is_power_of_two && std::abs(exponent) < 120) return a * Expression(1.0 / b.number());
  return std::nullopt;
}

std::optional<Expression> simpler(Operator op, const std::vector<Expression>& x) {
  switch (op) {
    case Operator::kNegate:
      if (x[0].op() == Operator::kNegate) return x[0].operands()[0];
      break;
    case Operator::kAdd:
      if (x[0].is_number(0.0)) return x[1];
      if (x[1].is_number(0.0)) return x[0];
      return joined(op, x[0], x[1]);
    case Operator::kSubtract:
      if (x[0].is_number(0.0)) return -x[1];
      if (x[1].is_number(0.0)) return x[0];
      return joined(op, x[0], x[1]);
    case Operator::kMultiply: return simpler_product(x[0], x[1]);
    case Operator::kDivide: return simpler_quotient(x[0], x[1]);
    case Operator::kFma:
      if (const auto product = trivial_product(x[0], x[1])) return *product + x[2];
      if (x[2].is_number(0.0)) return x[0] * x[1];
      break;
    case Operator::kWhereLess:
    case Operator::kWhereLessEqual:
      if (x[2] == x[3]) return x[2];
      break;
    default: break;
  }
  return std::nullopt;
}

}  // namespace

Expression simplified(Operator op, std::vector<Expression> operands) {
  if (std::optional<Expression> number = folded(op, operands)) return *std::move(number);
  if (std::optional<Expression> other = simpler(op, operands)) return *std::move(other);
  return Expression::make(op, std::move(operands));
}

Expression operator-(const Expression& a) { return simplified(Operator::kNegate, {a}); }
Expression operator+(const Expression& a, const Expression& b) {
  return simplified(Operator::kAdd, {a, b});
}
Expression operator-(const Expression& a, const Expression& b) {
  return simplified(Operator::kSubtract, {a, b});
}
Expression operator*(const Expression& a, const Expression& b) {
  return simplified(Operator::kMultiply, {a, b});
}
Expression operator/(const Expression& a, const Expression& b) {
  return simplified(Operator::kDivide, {a, b});
}

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

// Makes a tree anew from its leaves on. A part that stands in the tree more than once is made once.
class Remaker {
 public:
  using Make = Expression (*)(Operator op, std::vector<Expression> operands);

  explicit Remaker(Make make) : make_(make) {}

  Expression run(const Expression& e) {
    if (e.operands().empty()) return e;
    if (const auto known = done_.find(e.identity()); known != done_.end()) return known->second;
    std::vector<Expression> operands;
    for (const Expression& operand : e.operands()) operands.push_back(run(operand));
    return done_.emplace(e.identity(), make_(e.op(), std::move(operands))).first->second;
  }

 private:
  Make make_;
  std::unordered_map<const void*, Expression> done_;
};

}  // namespace

Expression simplify(const Expression& expression) { return Remaker(&simplified).run(expression); }

Expression expand(const Expression& expression) { return Remaker(&expanded).run(expression); }

}  // namespace moejit::compiler
