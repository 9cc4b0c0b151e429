// SPDX-License-Identifier: Apache-2.0
#include "compiler/formula_report.h"

#include "compiler/emitter/emitter.h"
#include "compiler/expression/functions.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <tuple>

namespace moejit::compiler {
namespace {

constexpr int64_t kLongestText = 400;  // nodes

// Rounds each operation to fp32, as kernels do: what overflows there overflows here.
class Fp32Evaluator {
 public:
  Fp32Evaluator(const Expression& formula, std::string_view first)
      : code_(straight_line({&formula, 1})), first_(first), values_(code_.assignments.size()) {}

  float operator()(float first, float second) {
    for (size_t i = 0; i < values_.size(); ++i) {
      const Assignment& assignment = code_.assignments[i];
      values_[i] = value_of(assignment, first, second);
    }
    return values_[static_cast<size_t>(code_.results.front())];
  }

 private:
  float value_of(const Assignment& assignment, float first, float second) const {
    if (assignment.op == Operator::kNumber) return static_cast<float>(assignment.number);
    if (assignment.op == Operator::kVariable) return assignment.name == first_ ? first : second;
    double operands[4] = {};
    std::ranges::transform(assignment.operands, operands,
                           [&](int32_t index) { return values_[static_cast<size_t>(index)]; });
    return static_cast<float>(compute(assignment.op, operands));
  }

  StraightLine code_;
  std::string_view first_;
  std::vector<float> values_;
};

struct Point {
  float first, second;
};

// Returns every finite bf16 number, from 0 away in both directions.
std::vector<float> all_bf16() {
  std::vector<float> values;
  for (uint32_t bits = 0; bits < 0x7f80u; ++bits)
    for (const uint32_t sign : {0u, 0x8000u})
      values.push_back(std::bit_cast<float>((bits | sign) << 16));
  return values;
}

std::vector<Point> points(bool are_pairs) {
  constexpr float kLargest = 0x1.fep127f;
  const std::vector<float> all = all_bf16();
  std::vector<Point> points;
  if (!are_pairs) {
    for (const float value : all) points.push_back({value, 0.0f});
    return points;
  }
  for (const float beside : {0.0f, 1.0f, -1.0f, kLargest, -kLargest})
    for (const float value : all) {
      points.push_back({value, beside});
      points.push_back({beside, value});
    }
  std::vector<float> powers;
  for (int exponent = -126; exponent <= 127; ++exponent)
    for (const float sign : {1.0f, -1.0f}) powers.push_back(std::ldexp(sign, exponent));
  for (const float first : powers)
    for (const float second : powers) points.push_back({first, second});
  return points;
}

// Ties go to positive numbers.
auto distance(const Point& point) {
  const float a = std::fabs(point.first), b = std::fabs(point.second);
  return std::tuple(std::max(a, b), std::min(a, b), std::signbit(point.first),
                    std::signbit(point.second), b);
}

}  // namespace

std::optional<BadPoint> find_bad_point(const Expression& formula,
                                       std::span<const std::string> variables) {
  Fp32Evaluator evaluate_at(formula, variables.front());
  std::optional<BadPoint> nearest;
  for (const Point& point : points(variables.size() > 1)) {
    // The cheap test comes first: points further away do not matter any more.
    if (nearest && !(distance(point) < distance({nearest->first, nearest->second}))) continue;
    const float result = evaluate_at(point.first, point.second);
    if (!std::isfinite(result)) nearest = {point.first, point.second, result};
  }
  return nearest;
}

FormulasReport report(const UserFormula& formula) {
  FormulasReport report;
  for (const auto& [name, part] : value_and_derivatives(formula))
    report.formulas.push_back(
        {.name = name,
         .text = part.size() <= kLongestText ? to_string(part) : std::string(),
         .bad_point = find_bad_point(part, formula.variables)});
  if (formula.activation) {
    report.value_code = value_type_text(*formula.activation);
    report.gradient_code = gradients_type_text(*formula.activation);
  } else {
    report.value_code = function_text("value", "logit", formula.value);
    report.gradient_code = function_text("slope", "logit", differentiate(formula.value, "logit"));
  }
  return report;
}

}  // namespace moejit::compiler
