// SPDX-License-Identifier: Apache-2.0
#include "compiler/expression.h"

#include "compiler/expression/functions.h"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

namespace moejit::compiler {

struct Expression::Node {
  Operator op = Operator::kNumber;
  double number = 0.0;
  std::string name;
  std::vector<Expression> operands;
  int64_t size = 1;
};

Expression::Expression(double number)
    : node_(std::make_shared<const Node>(Node{Operator::kNumber, number, {}, {}, 1})) {}

Expression Expression::variable(std::string_view name) {
  return Expression(
      std::make_shared<const Node>(Node{Operator::kVariable, 0.0, std::string(name), {}, 1}));
}

Expression Expression::make(Operator op, std::vector<Expression> operands) {
  int64_t size = 1;
  for (const Expression& operand : operands) size += operand.size();
  size = std::min(size, int64_t{1} << 40);  // bounds copies of copies
  return Expression(std::make_shared<const Node>(Node{op, 0.0, {}, std::move(operands), size}));
}

Operator Expression::op() const { return node_->op; }
double Expression::number() const { return node_->number; }
int64_t Expression::size() const { return node_->size; }
const std::string& Expression::name() const { return node_->name; }
const std::vector<Expression>& Expression::operands() const { return node_->operands; }

bool Expression::operator==(const Expression& other) const {
  if (node_ == other.node_) return true;
  return op() == other.op() && size() == other.size() && number() == other.number() &&
         name() == other.name() && operands() == other.operands();
}

namespace {

enum Precedence { kSum, kProduct, kOperand };

Precedence precedence_of(const Expression& e) {
  switch (e.op()) {
    case Operator::kAdd:
    case Operator::kSubtract: return kSum;
    case Operator::kMultiply:
    case Operator::kDivide: return kProduct;
    default: return kOperand;
  }
}

// Returns the text of an operand, in parentheses if it binds less than its place wants.
std::string operand_text(const Expression& e, Precedence wanted) {
  const std::string text = to_string(e);
  return precedence_of(e) < wanted ? fmt::format("({})", text) : text;
}

std::string binary_text(const Expression& e, std::string_view symbol, Precedence precedence) {
  // All operators associate to the left: the right operand has to bind more.
  const Precedence right = precedence == kSum ? kProduct : kOperand;
  return fmt::format("{} {} {}", operand_text(e.operands()[0], precedence), symbol,
                     operand_text(e.operands()[1], right));
}

std::string where_text(const Expression& e, std::string_view symbol) {
  const std::vector<Expression>& x = e.operands();
  return fmt::format("where({} {} {}, {}, {})", to_string(x[0]), symbol, to_string(x[1]),
                     to_string(x[2]), to_string(x[3]));
}

std::string call_text(const Expression& e) {
  const Function* function = find_function(e.op());
  std::string arguments;
  for (const Expression& operand : e.operands())
    arguments += (arguments.empty() ? "" : ", ") + to_string(operand);
  return fmt::format("{}({})", function == nullptr ? "?" : function->name, arguments);
}

}  // namespace

std::string to_string(const Expression& e) {
  switch (e.op()) {
    case Operator::kNumber: return fmt::format("{}", e.number());
    case Operator::kVariable: return e.name();
    case Operator::kNegate: {
      // "-7" is a number, and this is not one.
      const Expression& x = e.operands()[0];
      return x.is_number() ? fmt::format("-({})", to_string(x)) : "-" + operand_text(x, kOperand);
    }
    case Operator::kAdd: return binary_text(e, "+", kSum);
    case Operator::kSubtract: return binary_text(e, "-", kSum);
    case Operator::kMultiply: return binary_text(e, "*", kProduct);
    case Operator::kDivide: return binary_text(e, "/", kProduct);
    case Operator::kWhereLess: return where_text(e, "<");
    case Operator::kWhereLessEqual: return where_text(e, "<=");
    default: return call_text(e);
  }
}

}  // namespace moejit::compiler
