// SPDX-License-Identifier: Apache-2.0
#include "compiler/activation.h"
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
  explicit Fp32Evaluator(const Expression& formula)
      : code_(straight_line({&formula, 1})), values_(code_.assignments.size()) {}

  float operator()(float gate, float up) {
    for (size_t i = 0; i < values_.size(); ++i) {
      const Assignment& assignment = code_.assignments[i];
      values_[i] = value_of(assignment, gate, up);
    }
    return values_[static_cast<size_t>(code_.results.front())];
  }

 private:
  float value_of(const Assignment& assignment, float gate, float up) const {
    if (assignment.op == Operator::kNumber) return static_cast<float>(assignment.number);
    if (assignment.op == Operator::kVariable) return assignment.name == "gate" ? gate : up;
    double operands[4] = {};
    std::ranges::transform(assignment.operands, operands,
                           [&](int32_t index) { return values_[static_cast<size_t>(index)]; });
    return static_cast<float>(compute(assignment.op, operands));
  }

  StraightLine code_;
  std::vector<float> values_;
};

struct Point {
  float gate, up;
};

// Returns every finite bf16 number, from 0 away in both directions.
std::vector<float> all_bf16() {
  std::vector<float> values;
  for (uint32_t bits = 0; bits < 0x7f80u; ++bits)
    for (const uint32_t sign : {0u, 0x8000u})
      values.push_back(std::bit_cast<float>((bits | sign) << 16));
  return values;
}

std::vector<Point> points() {
  constexpr float kLargest = 0x1.fep127f;
  const std::vector<float> all = all_bf16();
  std::vector<Point> points;
  for (const float beside : {0.0f, 1.0f, -1.0f, kLargest, -kLargest})
    for (const float value : all) {
      points.push_back({value, beside});
      points.push_back({beside, value});
    }
  std::vector<float> powers;
  for (int exponent = -126; exponent <= 127; ++exponent)
    for (const float sign : {1.0f, -1.0f}) powers.push_back(std::ldexp(sign, exponent));
  for (const float gate : powers)
    for (const float up : powers) points.push_back({gate, up});
  return points;
}

// Ties go to positive numbers.
auto distance(const Point& point) {
  const float a = std::fabs(point.gate), b = std::fabs(point.up);
  return std::tuple(std::max(a, b), std::min(a, b), std::signbit(point.gate),
                    std::signbit(point.up), b);
}

}  // namespace

std::optional<BadPoint> find_bad_point(const Expression& formula) {
  Fp32Evaluator evaluate_at(formula);
  std::optional<BadPoint> nearest;
  for (const Point& point : points()) {
    // The cheap test comes first: points further away do not matter any more.
    if (nearest && !(distance(point) < distance({nearest->gate, nearest->up}))) continue;
    const float result = evaluate_at(point.gate, point.up);
    if (!std::isfinite(result)) nearest = {point.gate, point.up, result};
  }
  return nearest;
}

ActivationReport report(const Activation& activation) {
  const auto describe = [](std::string name, const Expression& formula) {
    return FormulaReport{
        .name = std::move(name),
        .text = formula.size() <= kLongestText ? to_string(formula) : std::string(),
        .bad_point = find_bad_point(formula)};
  };
  std::vector<FormulaReport> formulas = {describe("value", activation.formula)};
  if (has_gate(activation))
    formulas.push_back(describe("d / d gate", differentiate(activation.formula, "gate")));
  formulas.push_back(describe("d / d up", differentiate(activation.formula, "up")));
  return {.formulas = std::move(formulas),
          .value_code = value_type_text(activation),
          .gradient_code = gradients_type_text(activation)};
}

}  // namespace moejit::compiler
