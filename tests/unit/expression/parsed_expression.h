// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/expression.h"

#include <string_view>

namespace moejit::compiler {

// Returns the expression of the variables gate and up that the text says.
inline Expression parsed(std::string_view text) {
  return parse_expression(text, {.variables = {"gate", "up"}}).value();
}

}  // namespace moejit::compiler
