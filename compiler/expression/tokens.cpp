// SPDX-License-Identifier: Apache-2.0
#include "compiler/expression/tokens.h"

#include "compiler/support/json_document.h"

#include <cfloat>
#include <charconv>
#include <cmath>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

constexpr std::string_view kSymbols = "+-*/(),<>";

std::string_view name_at(std::string_view rest) {
  size_t end = 0;
  while (end < rest.size() && is_name_part(rest[end])) ++end;
  return rest.substr(0, end);
}

Result<Token> number_at(std::string_view rest, int column) {
  double value = 0.0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  const std::string_view text = rest.substr(0, static_cast<size_t>(end - rest.data()));
  if (error == std::errc::invalid_argument)
    return fail_at(column, fmt::format("got {}, wanted a number", quote_for_message(rest)));
  const double magnitude = std::fabs(value);
  if (error == std::errc::result_out_of_range || magnitude > double{FLT_MAX} ||
      (magnitude > 0.0 && magnitude < double{FLT_MIN}))
    return fail_at(column, fmt::format("got {}, wanted 0 or a number of fp32, {} to {}", text,
                                       FLT_MIN, FLT_MAX));
  return Token{TokenKind::kNumber, text, column, value};
}

Result<Token> token_at(std::string_view rest, int column) {
  const char c = rest.front();
  if (is_digit(c) || c == '.') return number_at(rest, column);
  if (is_name_start(c)) return Token{TokenKind::kName, name_at(rest), column};
  // "<=" and ">=" are symbols of two characters.
  const size_t length = (c == '<' || c == '>') && rest.size() > 1 && rest[1] == '=' ? 2 : 1;
  if (kSymbols.find(c) != std::string_view::npos)
    return Token{TokenKind::kSymbol, rest.substr(0, length), column};
  return fail_at(column,
                 fmt::format("got {}, wanted a number, a name or one of {}",
                             quote_for_message(rest.substr(0, 1)), kSymbols),
                 c == '^' ? "write x * x for a square" : "");
}

}  // namespace

tl::unexpected<Error> fail_at(int column, std::string_view what, std::string hint) {
  return fail(Stage::kParse, ErrorCode::kInvalidValue, fmt::format("column {}: {}", column, what),
              std::move(hint));
}

std::string got(const Token& token) {
  return token.kind == TokenKind::kEnd ? "the end" : quote_for_message(token.text);
}

Result<std::vector<Token>> read_tokens(std::string_view text) {
  std::vector<Token> tokens;
  size_t at = 0;
  while (at < text.size()) {
    if (text[at] == ' ') {
      ++at;
      continue;
    }
    MOEJIT_TRY_ASSIGN(const Token token, token_at(text.substr(at), static_cast<int>(at) + 1));
    tokens.push_back(token);
    at += token.text.size();
  }
  tokens.push_back({TokenKind::kEnd, {}, static_cast<int>(text.size()) + 1});
  return tokens;
}

}  // namespace moejit::compiler
