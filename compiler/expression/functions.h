// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/expression.h"

#include <optional>
#include <span>

namespace moejit::compiler {

// An operator that formulas write as a function.
struct Function {
  std::string_view name;
  Operator op;
  int operand_count;
  std::string_view arguments;  // for messages: "x", "x, lowest, highest"
};

// Returns all functions except where(), whose first argument is a comparison.
std::span<const Function> functions();
const Function* find_function(std::string_view name);
const Function* find_function(Operator op);

// Computes one operation on numbers. Must not be called for kNumber, kVariable and the operators
// that expand() replaces.
double compute(Operator op, std::span<const double> operands);

}  // namespace moejit::compiler
