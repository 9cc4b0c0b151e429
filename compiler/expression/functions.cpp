// SPDX-License-Identifier: Apache-2.0
#include "compiler/expression/functions.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace moejit::compiler {
namespace {

constexpr std::array kFunctions = std::to_array<Function>({
    {"sigmoid", Operator::kSigmoid, 1, "x"},
    {"silu", Operator::kSilu, 1, "x"},
    {"tanh", Operator::kTanh, 1, "x"},
    {"exp", Operator::kExp, 1, "x"},
    {"log", Operator::kLog, 1, "x"},
    {"sqrt", Operator::kSqrt, 1, "x"},
    {"abs", Operator::kAbs, 1, "x"},
    {"relu", Operator::kRelu, 1, "x"},
    {"erf", Operator::kErf, 1, "x"},
    {"erfc", Operator::kErfc, 1, "x"},
    {"gelu", Operator::kGelu, 1, "x"},
    {"gelu_tanh", Operator::kGeluTanh, 1, "x"},
    {"quick_gelu", Operator::kQuickGelu, 1, "x"},
    {"min", Operator::kMin, 2, "a, b"},
    {"max", Operator::kMax, 2, "a, b"},
    {"clamp", Operator::kClamp, 3, "x, lowest, highest"},
    {"fma", Operator::kFma, 3, "a, b, c"},
});

// Returns the smaller value by `less`, or NaN.
template <typename Less>
double choose(double a, double b, Less less) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  return less(b, a) ? b : a;
}

}  // namespace

std::span<const Function> functions() { return kFunctions; }

const Function* find_function(std::string_view name) {
  const auto found = std::ranges::find(kFunctions, name, &Function::name);
  return found == kFunctions.end() ? nullptr : &*found;
}

const Function* find_function(Operator op) {
  const auto found = std::ranges::find(kFunctions, op, &Function::op);
  return found == kFunctions.end() ? nullptr : &*found;
}

std::vector<std::string_view> function_names() {
  std::vector<std::string_view> names;
  for (const Function& function : kFunctions) names.push_back(function.name);
  names.emplace_back("where");
  return names;
}

double compute(Operator op, std::span<const double> x) {
  switch (op) {
    case Operator::kNegate: return -x[0];
    case Operator::kAdd: return x[0] + x[1];
    case Operator::kSubtract: return x[0] - x[1];
    case Operator::kMultiply: return x[0] * x[1];
    case Operator::kDivide: return x[0] / x[1];
    case Operator::kFma: return std::fma(x[0], x[1], x[2]);
    case Operator::kWhereLess: return x[0] < x[1] ? x[2] : x[3];
    case Operator::kWhereLessEqual: return x[0] <= x[1] ? x[2] : x[3];
    case Operator::kMin: return choose(x[0], x[1], std::less<>());
    case Operator::kMax: return choose(x[0], x[1], std::greater<>());
    case Operator::kRelu: return choose(x[0], 0.0, std::greater<>());
    case Operator::kAbs: return std::fabs(x[0]);
    case Operator::kSigmoid: return 1.0 / (1.0 + std::exp(-x[0]));
    case Operator::kTanh: return std::tanh(x[0]);
    case Operator::kExp: return std::exp(x[0]);
    case Operator::kLog: return std::log(x[0]);
    case Operator::kSqrt: return std::sqrt(x[0]);
    case Operator::kErf: return std::erf(x[0]);
    case Operator::kErfc: return std::erfc(x[0]);
    case Operator::kNumber:
    case Operator::kVariable:
    case Operator::kSilu:
    case Operator::kGelu:
    case Operator::kGeluTanh:
    case Operator::kQuickGelu:
    case Operator::kClamp: break;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace moejit::compiler
