// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"

#include <span>
#include <string>
#include <string_view>

namespace moejit::cli {

// Has moejit-formula, which lies beside this program, compile a formula. Takes the options and
// returns the text and the errors of compiler::run_formula_program().
Result<std::string> ask_llvm(std::string_view formula, std::span<const std::string> options);

// Returns a line for each formula of a layer's description, of its activation or of its router's
// scores: what LLVM counts for an element. It is empty for other plans, and where there is no
// moejit-formula.
std::string costs_of_formulas(const compiler::Plan& plan);

}  // namespace moejit::cli
