// SPDX-License-Identifier: Apache-2.0
#include "compiler/expression/functions.h"

#include <algorithm>
#include <unordered_map>

namespace moejit::compiler {
namespace {

class Numbering {
 public:
  int32_t number(const Expression& e) {
    if (const auto known = of_node_.find(e.identity()); known != of_node_.end())
      return known->second;
    Assignment assignment{.op = e.op(), .number = e.number(), .name = e.name()};
    for (const Expression& operand : e.operands()) assignment.operands.push_back(number(operand));
    const int32_t index = find_or_add(assignment);
    of_node_.emplace(e.identity(), index);
    return index;
  }
  std::vector<Assignment> take() { return std::move(assignments_); }

 private:
  int32_t find_or_add(const Assignment& assignment) {
    const auto next = static_cast<int32_t>(assignments_.size());
    const auto [place, is_new] = of_assignment_.emplace(assignment, next);
    if (is_new) assignments_.push_back(assignment);
    return place->second;
  }

  std::vector<Assignment> assignments_;
  std::unordered_map<const void*, int32_t> of_node_;
  std::map<Assignment, int32_t> of_assignment_;
};

}  // namespace

StraightLine straight_line(std::span<const Expression> expressions) {
  // The table's keys are addresses of nodes.
  std::vector<Expression> expanded;
  for (const Expression& e : expressions) expanded.push_back(simplify(expand(e)));
  Numbering numbering;
  StraightLine code;
  for (const Expression& e : expanded) code.results.push_back(numbering.number(e));
  code.assignments = numbering.take();
  return code;
}

std::vector<double> evaluate(const StraightLine& code, const Values& variables) {
  std::vector<double> values;
  values.reserve(code.assignments.size());
  for (const Assignment& assignment : code.assignments) {
    double operands[4] = {};
    std::ranges::transform(assignment.operands, operands,
                           [&](int32_t index) { return values[static_cast<size_t>(index)]; });
    if (assignment.op == Operator::kNumber)
      values.push_back(assignment.number);
    else if (assignment.op == Operator::kVariable)
      values.push_back(variables.at(assignment.name));
    else
      values.push_back(compute(assignment.op, operands));
  }
  std::vector<double> results;
  for (const int32_t index : code.results) results.push_back(values[static_cast<size_t>(index)]);
  return results;
}

double evaluate(const Expression& expression, const Values& variables) {
  return evaluate(straight_line({&expression, 1}), variables).front();
}

}  // namespace moejit::compiler
