// SPDX-License-Identifier: Apache-2.0
#include "compiler/expression.h"

#include <algorithm>
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

}  // namespace moejit::compiler
