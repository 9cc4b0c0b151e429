// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

#include <string_view>
#include <vector>

namespace moejit::compiler {

// The parts of a formula. `text` is a part of the formula, empty at its end.
enum class TokenKind { kNumber, kName, kSymbol, kEnd };
struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;
  int column = 1;  // of its first character
  double number = 0.0;
};

// Splits a formula into tokens; the last one is kEnd. kInvalidValue: a character that no formula
// has, a malformed number, or a number out of fp32's range.
Result<std::vector<Token>> read_tokens(std::string_view text);

// Returns an error at a place of a formula.
tl::unexpected<Error> fail_at(int column, std::string_view what, std::string hint = {});

// Returns what a message calls a token: "sigmod", or the end.
std::string got(const Token& token);

}  // namespace moejit::compiler
