// SPDX-License-Identifier: Apache-2.0
// Parses formulas by recursive descent over this grammar:
//   sum     = product { ("+" | "-") product }
//   product = operand { ("*" | "/") operand }
//   operand = "-" operand | number | name | name "(" sum { "," sum } ")" | "(" sum ")"
// and where(sum < sum, sum, sum), with <, <=, > or >=. A minus in front of a number is its sign.

#include "compiler/expression/functions.h"
#include "compiler/expression/tokens.h"
#include "compiler/support/nearest_name.h"

#include <algorithm>
#include <fmt/core.h>
#include <fmt/ranges.h>

namespace moejit::compiler {
namespace {

// Nobody writes longer formulas by hand, and a kernel holds their values in registers.
constexpr size_t kMaxLength = 1000;
constexpr int kMaxDepth = 64;
constexpr int64_t kMaxSize = 4096;

class Parser {
 public:
  Parser(std::vector<Token> tokens, const FormulaNames& names)
      : tokens_(std::move(tokens)), names_(names) {}

  Result<Expression> run() {
    MOEJIT_TRY_ASSIGN(Expression e, sum());
    if (token().kind != TokenKind::kEnd)
      return fail_here(fmt::format("got {}, wanted an operator or the end", got(token())));
    return e;
  }

 private:
  const Token& token() const { return tokens_[at_]; }
  bool is_symbol(std::string_view symbol) const {
    return token().kind == TokenKind::kSymbol && token().text == symbol;
  }
  bool take(std::string_view symbol) {
    if (!is_symbol(symbol)) return false;
    ++at_;
    return true;
  }
  Result<void> want(std::string_view symbol, std::string_view place) {
    if (take(symbol)) return {};
    return fail_here(fmt::format("got {}, wanted \"{}\" {}", got(token()), symbol, place));
  }
  tl::unexpected<Error> fail_here(std::string_view what, std::string hint = {}) const {
    return fail_at(token().column, what, std::move(hint));
  }

  Result<Expression> sum() {
    MOEJIT_TRY_ASSIGN(Expression e, product());
    while (is_symbol("+") || is_symbol("-")) {
      const Operator op = token().text == "+" ? Operator::kAdd : Operator::kSubtract;
      ++at_;
      MOEJIT_TRY_ASSIGN(Expression right, product());
      e = Expression::make(op, {e, std::move(right)});
    }
    return e;
  }

  Result<Expression> product() {
    MOEJIT_TRY_ASSIGN(Expression e, operand());
    while (is_symbol("*") || is_symbol("/")) {
      const Operator op = token().text == "*" ? Operator::kMultiply : Operator::kDivide;
      ++at_;
      MOEJIT_TRY_ASSIGN(Expression right, operand());
      e = Expression::make(op, {e, std::move(right)});
    }
    return e;
  }

  Result<Expression> operand() {
    if (depth_ == kMaxDepth)
      return fail_here(fmt::format("nested deeper than {} times", kMaxDepth));
    ++depth_;
    Result<Expression> e = operand_inside();
    --depth_;
    return e;
  }

  Result<Expression> operand_inside() {
    if (take("-")) {
      const bool is_sign = token().kind == TokenKind::kNumber;
      MOEJIT_TRY_ASSIGN(Expression e, operand());
      if (is_sign) return Expression(-e.number());
      return Expression::make(Operator::kNegate, {std::move(e)});
    }
    if (take("(")) {
      MOEJIT_TRY_ASSIGN(Expression e, sum());
      MOEJIT_TRY(want(")", "behind what stands in parentheses"));
      return e;
    }
    const Token start = token();
    if (start.kind == TokenKind::kNumber) {
      ++at_;
      return Expression(start.number);
    }
    if (start.kind == TokenKind::kName) {
      ++at_;
      return is_symbol("(") ? call(start) : name(start);
    }
    return fail_here(fmt::format("got {}, wanted a number, {} or a function", got(start),
                                 fmt::join(names_.variables, ", ")));
  }

  Result<Expression> name(const Token& start) const {
    if (std::ranges::count(names_.variables, start.text) > 0)
      return Expression::variable(start.text);
    if (const auto constant = names_.constants.find(start.text); constant != names_.constants.end())
      return Expression(constant->second);
    std::vector<std::string_view> known = names_.variables;
    for (const auto& [constant, value] : names_.constants) known.emplace_back(constant);
    const std::string_view nearest = nearest_name(start.text, known);
    std::string hint = nearest.empty() ? "" : fmt::format("did you mean {}?", nearest);
    if (find_function(start.text) != nullptr || start.text == "where")
      hint = fmt::format("{} is a function: write its arguments in parentheses", start.text);
    return fail_at(start.column,
                   fmt::format("got {}, wanted one of {}", got(start), fmt::join(known, ", ")),
                   std::move(hint));
  }

  Result<Expression> call(const Token& start) {
    ++at_;  // the parenthesis
    if (start.text == "where") return where();
    const Function* const function = find_function(start.text);
    if (function == nullptr) return unknown_function(start);
    std::vector<Expression> operands;
    for (int i = 0; i < function->operand_count; ++i) {
      const std::string place = fmt::format("in {}({})", function->name, function->arguments);
      if (i > 0) MOEJIT_TRY(want(",", place));
      MOEJIT_TRY_ASSIGN(Expression e, sum());
      operands.push_back(std::move(e));
      if (i + 1 == function->operand_count) MOEJIT_TRY(want(")", place));
    }
    return Expression::make(function->op, std::move(operands));
  }

  Result<Expression> where() {
    constexpr std::string_view kPlace = "in where(a < b, x, y)";
    MOEJIT_TRY_ASSIGN(Expression left, sum());
    const std::string_view symbol = token().text;
    const bool is_comparison =
        is_symbol("<") || is_symbol("<=") || is_symbol(">") || is_symbol(">=");
    if (!is_comparison)
      return fail_here(fmt::format("got {}, wanted a comparison {}", got(token()), kPlace));
    ++at_;
    MOEJIT_TRY_ASSIGN(Expression right, sum());
    MOEJIT_TRY(want(",", kPlace));
    MOEJIT_TRY_ASSIGN(Expression then, sum());
    MOEJIT_TRY(want(",", kPlace));
    MOEJIT_TRY_ASSIGN(Expression otherwise, sum());
    MOEJIT_TRY(want(")", kPlace));
    if (symbol.front() == '>') std::swap(left, right);
    return Expression::make(symbol.size() == 1 ? Operator::kWhereLess : Operator::kWhereLessEqual,
                            {left, right, then, otherwise});
  }

  static tl::unexpected<Error> unknown_function(const Token& start) {
    const std::vector<std::string_view> known = function_names();
    const std::string_view nearest = nearest_name(start.text, known);
    return fail_at(
        start.column,
        fmt::format("got the function {}, wanted one of {}", got(start), fmt::join(known, ", ")),
        nearest.empty() ? "" : fmt::format("did you mean {}?", nearest));
  }

  std::vector<Token> tokens_;
  const FormulaNames& names_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

Result<Expression> parse_expression(std::string_view text, const FormulaNames& names) {
  if (text.size() > kMaxLength)
    return fail_at(1, fmt::format("got {} characters, wanted at most {}", text.size(), kMaxLength));
  MOEJIT_TRY_ASSIGN(std::vector<Token> tokens, read_tokens(text));
  MOEJIT_TRY_ASSIGN(Expression e, Parser(std::move(tokens), names).run());
  // silu(silu(x)) has x four times.
  if (const int64_t size = expand(e).size(); size > kMaxSize)
    return fail_at(1, fmt::format("got {} operations, wanted at most {}", size, kMaxSize));
  return e;
}

}  // namespace moejit::compiler
