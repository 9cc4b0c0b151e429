// SPDX-License-Identifier: Apache-2.0
#include "compiler/expression.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <string>

namespace moejit::compiler {
namespace {

const FormulaNames kNames{.variables = {"gate", "up"}, .constants = {{"limit", 7.0}}};

Expression parsed_with_limit(std::string_view text) {
  const Result<Expression> e = parse_expression(text, kNames);
  EXPECT_TRUE(e) << text << ": " << (e ? "" : e.error().message);
  return e.value_or(Expression(0.0));
}

double value_of(std::string_view text, double gate = 0.0, double up = 0.0) {
  return evaluate(parsed_with_limit(text), {{"gate", gate}, {"up", up}});
}

TEST(ParseExpression, KnowsTheUsualPrecedence) {
  EXPECT_EQ(value_of("1 + 2 * 3"), 7.0);
  EXPECT_EQ(value_of("(1 + 2) * 3"), 9.0);
  EXPECT_EQ(value_of("8 - 2 - 1"), 5.0);
  EXPECT_EQ(value_of("8 / 2 / 2"), 2.0);
  EXPECT_EQ(value_of("-gate * 2", 3.0), -6.0);
  EXPECT_EQ(value_of("2 - -3"), 5.0);
  EXPECT_EQ(value_of("--gate", 3.0), 3.0);
}

TEST(ParseExpression, ReadsNumbersAsTheyAreWritten) {
  EXPECT_EQ(value_of("1.702"), 1.702);
  EXPECT_EQ(value_of("2e-3"), 2e-3);
  EXPECT_EQ(value_of("1E+2"), 100.0);
  EXPECT_EQ(value_of(".5"), 0.5);
  EXPECT_EQ(value_of("-1e-20"), -1e-20);
}

TEST(ParseExpression, TakesVariablesAndConstants) {
  EXPECT_EQ(value_of("gate + 10 * up", 1.0, 2.0), 21.0);
  EXPECT_EQ(value_of("gate * limit", 2.0), 14.0);
}

TEST(ParseExpression, KnowsEveryFunction) {
  EXPECT_DOUBLE_EQ(value_of("sigmoid(1)"), 0.73105857863000488);
  EXPECT_DOUBLE_EQ(value_of("silu(2)"), 1.7615941559557649);
  EXPECT_DOUBLE_EQ(value_of("tanh(0.5)"), 0.46211715726000976);
  EXPECT_DOUBLE_EQ(value_of("exp(1)"), 2.7182818284590452);
  EXPECT_DOUBLE_EQ(value_of("log(2)"), 0.69314718055994531);
  EXPECT_DOUBLE_EQ(value_of("sqrt(2)"), 1.4142135623730951);
  EXPECT_EQ(value_of("abs(-2)"), 2.0);
  EXPECT_EQ(value_of("relu(-2) + relu(3)"), 3.0);
  EXPECT_DOUBLE_EQ(value_of("erf(0.5)"), 0.52049987781304654);
  EXPECT_DOUBLE_EQ(value_of("erfc(0.5)"), 0.47950012218695346);
  EXPECT_DOUBLE_EQ(value_of("gelu(1)"), 0.84134474606854293);
  EXPECT_DOUBLE_EQ(value_of("gelu_tanh(1)"), 0.84119199060827670);
  EXPECT_DOUBLE_EQ(value_of("quick_gelu(1)"), 0.8457957659328212);
  EXPECT_EQ(value_of("min(2, 3) + 10 * max(2, 3)"), 32.0);
  EXPECT_EQ(value_of("clamp(9, -7, 7) + clamp(-9, -7, 7) + clamp(1, -7, 7)"), 1.0);
  EXPECT_EQ(value_of("fma(2, 3, 4)"), 10.0);
  EXPECT_EQ(value_of("where(gate < up, 1, 2)", 1.0, 1.0), 2.0);
  EXPECT_EQ(value_of("where(gate <= up, 1, 2)", 1.0, 1.0), 1.0);
  EXPECT_EQ(value_of("where(gate > up, 1, 2)", 2.0, 1.0), 1.0);
  EXPECT_EQ(value_of("where(gate >= up, 1, 2)", 1.0, 2.0), 2.0);
}

TEST(ParseExpression, KeepsNanThroughMinMaxAndRelu) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const char* text : {"min(gate, 1)", "max(1, gate)", "relu(gate)", "clamp(gate, -1, 1)"})
    EXPECT_TRUE(std::isnan(value_of(text, nan))) << text;
}

TEST(PrintExpression, ReadsBackToAnEqualTree) {
  for (const char* text :
       {"gate", "-7", "-(7)", "-gate", "--gate", "gate - (up - 1)", "gate - up - 1",
        "gate / (up / 2)", "gate * (up * 2)", "(gate + up) * -2", "-(gate + up)", "-(gate * up)",
        "silu(gate) * up", "min(gate, 7) * sigmoid(1.702 * min(gate, 7)) * (clamp(up, -7, 7) + 1)",
        "where(gate < -1, up, gate * 1e-05)", "where(gate <= up, -1, 1)", "fma(gate, up, 2)",
        "0.1 + 1e+30 + 1.2e-38", "gelu_tanh(quick_gelu(gelu(gate)))"}) {
    const Expression tree = parsed_with_limit(text);
    EXPECT_EQ(parsed_with_limit(to_string(tree)), tree) << text << " became " << to_string(tree);
  }
}

TEST(PrintExpression, WritesNoNeedlessParentheses) {
  for (const char* text : {"gate - (up - 1)", "gate - up - 1", "gate * up / 2", "-gate * up",
                           "(gate + 1) * up", "-(gate + up)", "where(gate < 1, up, -2)"})
    EXPECT_EQ(to_string(parsed_with_limit(text)), text);
}

struct Mistake {
  const char* text;
  const char* message;
  const char* hint;
};

TEST(ParseExpression, TellsWhereAMistakeIsAndWhatWasWanted) {
  for (const auto& [text, message, hint] : std::initializer_list<Mistake>{
           {"", "column 1: got the end, wanted a number, gate, up or a function", ""},
           {"gate +", "column 7: got the end, wanted a number", ""},
           {"gate up", "column 6: got \"up\", wanted an operator or the end", ""},
           {"gate * gat", "column 8: got \"gat\", wanted one of gate, up, limit",
            "did you mean gate?"},
           {"sigmod(gate)", "column 1: got the function \"sigmod\", wanted one of sigmoid, silu",
            "did you mean sigmoid?"},
           {"silu * up", "column 1: got \"silu\"", "silu is a function"},
           {"(gate", "column 6: got the end, wanted \")\"", ""},
           {"gate)", "column 5: got \")\", wanted an operator or the end", ""},
           {"clamp(up, 1)", "column 12: got \")\", wanted \",\" in clamp(x, lowest, highest)", ""},
           {"silu(gate, up)", "column 10: got \",\", wanted \")\" in silu(x)", ""},
           {"gate ^ 2", "column 6: got \"^\"", "x * x"},
           {"where(gate, 1, 2)", "column 11: got \",\", wanted a comparison", ""},
           {"gate < up", "column 6: got \"<\", wanted an operator or the end", ""},
           {"1e39 * gate", "column 1: got 1e39, wanted 0 or a number of fp32", ""},
           {"1e-39 * gate", "column 1: got 1e-39, wanted 0 or a number of fp32", ""},
           {"gate * .", "column 8: got \".\", wanted a number", ""},
           {"gate\n+ up", "column 5: got", ""},
       }) {
    const Result<Expression> e = parse_expression(text, kNames);
    ASSERT_FALSE(e) << text;
    EXPECT_EQ(e.error().code, ErrorCode::kInvalidValue);
    EXPECT_NE(e.error().message.find(message), std::string::npos) << e.error().message;
    EXPECT_NE(e.error().hint.find(hint), std::string::npos) << e.error().hint;
  }
}

TEST(ParseExpression, RefusesFormulasThatNobodyWrites) {
  EXPECT_FALSE(parse_expression(std::string(200, '(') + "gate" + std::string(200, ')'), kNames));
  EXPECT_FALSE(parse_expression(std::string(200, '-') + "gate", kNames));
  EXPECT_FALSE(parse_expression("gate" + std::string(1001, ' '), kNames));
  std::string nested = "gate";
  for (int i = 0; i < 40; ++i) nested = "silu(" + nested + ")";
  const Result<Expression> e = parse_expression(nested, kNames);
  ASSERT_FALSE(e);
  EXPECT_NE(e.error().message.find("wanted at most 4096"), std::string::npos) << e.error().message;
}

}  // namespace
}  // namespace moejit::compiler
