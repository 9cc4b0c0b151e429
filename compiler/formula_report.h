// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/user_formula.h"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace moejit::compiler {

// Finite bf16 numbers at which a formula computed in fp32 is not finite.
struct BadPoint {
  float first = 0.0f;
  float second = 0.0f;  // 0 if there is one variable
  float result = 0.0f;  // infinite or NaN
  bool operator==(const BadPoint&) const = default;
};

// Returns the tried point nearest to 0 with a bad result; none if all results are finite. Takes one
// or two variables. Tries every finite bf16 number for each, beside a few values of the other one,
// and all pairs of powers of two. The distance is the larger of the two magnitudes, then the
// smaller.
std::optional<BadPoint> find_bad_point(const Expression& formula,
                                       std::span<const std::string> variables);

// What `moejit` reports about value or derivative.
struct FormulaReport {
  std::string name;
  std::string text;  // empty if the formula has more than a few hundred operations
  std::optional<BadPoint> bad_point;
};
struct FormulasReport {
  std::vector<FormulaReport> formulas;
  std::string value_code;     // the code in forward kernels
  std::string gradient_code;  // the code in backward kernels
};
FormulasReport report(const UserFormula& formula);

}  // namespace moejit::compiler
