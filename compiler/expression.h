// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

// What a node of an expression computes from its operands. Operators from kSilu on are short for
// expressions of the others: see expand().
enum class Operator {
  kNumber,
  kVariable,
  kNegate,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFma,             // a * b + c with one rounding
  kWhereLess,       // a < b ? c : d
  kWhereLessEqual,  // a <= b ? c : d
  kMin,             // NaN if an operand is NaN, as are kMax and kRelu
  kMax,
  kRelu,
  kAbs,
  kSigmoid,
  kTanh,
  kExp,
  kLog,
  kSqrt,
  kErf,
  kErfc,  // 1 - erf, without the loss of precision where erf is near 1
  kSilu,
  kGelu,
  kGeluTanh,
  kQuickGelu,
  kClamp,
};

// A formula as an immutable tree and a plain value: copies share their nodes, equal trees are
// equal. The operators below simplify their result; make() keeps what it is given.
class Expression {
 public:
  Expression(double number);  // NOLINT: formulas mix numbers and expressions
  static Expression variable(std::string_view name);
  static Expression make(Operator op, std::vector<Expression> operands);

  Operator op() const;
  double number() const;            // of kNumber, else 0
  const std::string& name() const;  // of kVariable, else empty
  const std::vector<Expression>& operands() const;

  int64_t size() const;  // nodes of the tree, shared nodes counted at each use; at most 2^40

  bool is_number() const { return op() == Operator::kNumber; }
  bool is_number(double value) const { return is_number() && number() == value; }
  bool operator==(const Expression& other) const;
  // Returns an address that is equal for copies. Two expressions with different addresses may still
  // be equal.
  const void* identity() const { return node_.get(); }

 private:
  struct Node;
  explicit Expression(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  std::shared_ptr<const Node> node_;
};

Expression operator-(const Expression& a);
Expression operator+(const Expression& a, const Expression& b);
Expression operator-(const Expression& a, const Expression& b);
Expression operator*(const Expression& a, const Expression& b);
Expression operator/(const Expression& a, const Expression& b);
// Makes one operation, simplified as by the operators above. Operations on numbers alone are
// computed in double. 0 and 1 vanish as terms and factors (0 * x is 0 for any x). A division by a
// power of two becomes a product. A product with a choice that has a branch 0 is moved into its
// branches. The rounding of the formula does not change otherwise.
Expression simplified(Operator op, std::vector<Expression> operands);
Expression simplify(const Expression& expression);

// The names that a formula may use, beside the functions of function_names().
struct FormulaNames {
  std::vector<std::string_view> variables;
  std::map<std::string, double, std::less<>> constants;
};
// Reads a formula: numbers, the names of `variables` and `constants`, + - * / with the usual
// precedence, parentheses, and the functions of function_names(). Error kInvalidValue with the
// column, what was got, what was wanted, and the nearest name.
Result<Expression> parse_expression(std::string_view text, const FormulaNames& names);
std::vector<std::string_view> function_names();

// Returns text that parse_expression() reads back to an equal tree.
std::string to_string(const Expression& expression);

// Returns an equivalent expression without Operator::kSilu and the operators behind it.
Expression expand(const Expression& expression);

// Returns the derivative with respect to a variable, expanded and simplified. At kinks it is
// PyTorch's. relu and abs have 0 at 0. min and max with a number, and so clamp, have the derivative
// of the other operand. If two operands that are not numbers are equal, each gives half. NaN stays
// NaN where the operand's derivative does not depend on the branch.
Expression differentiate(const Expression& expression, std::string_view variable);

// One step of a list of assignments, in which operands come before their uses and equal parts are
// computed once.
struct Assignment {
  Operator op = Operator::kNumber;
  double number = 0.0;
  std::string name = {};
  std::vector<int32_t> operands = {};  // indices of earlier assignments
  auto operator<=>(const Assignment&) const = default;
};
struct StraightLine {
  std::vector<Assignment> assignments;
  std::vector<int32_t> results;  // an index for each expression
};
StraightLine straight_line(std::span<const Expression> expressions);

// Evaluates the results in double. Every variable must have a value.
using Values = std::map<std::string, double, std::less<>>;
std::vector<double> evaluate(const StraightLine& code, const Values& variables);
double evaluate(const Expression& expression, const Values& variables);

// The value of the first result, and, to first order, a bound on how far its fp32 value may be from
// it. Each operation is rounded once, and functions have the errors that they have in kernels.
// Overflow and subnormal numbers are not covered.
struct BoundedValue {
  double value = 0.0;
  double error = 0.0;
};
BoundedValue evaluate_with_error(const StraightLine& code, const Values& variables);

}  // namespace moejit::compiler
