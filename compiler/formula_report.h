// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

// The formula of an activation, or of a router's scores.
struct UserFormula {
  Expression value;
  std::vector<std::string> variables;    // gate and up, up alone, or logit
  std::optional<Activation> activation;  // none: scores
};

// Reads the name of an activation's preset, a formula over gate and up, or one over logit. Errors:
// kInvalidValue, as of parse_activation() and parse_score().
Result<UserFormula> parse_user_formula(std::string_view text);

// Reads the formula of a router's scores. Errors: as of parse_expression(), and kInvalidValue for a
// formula without logit.
Result<Expression> parse_score(std::string_view formula);

struct NamedFormula {
  std::string name;  // "value", "d / d gate" where there is one, "d / d up", "d / d logit"
  Expression formula;
};
// Returns the value and its derivatives, as kernels compute them.
std::vector<NamedFormula> value_and_derivatives(const UserFormula& formula);

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
