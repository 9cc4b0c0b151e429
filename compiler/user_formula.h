// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"

#include <optional>
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

}  // namespace moejit::compiler
