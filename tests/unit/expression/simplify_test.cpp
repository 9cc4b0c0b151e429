// SPDX-License-Identifier: Apache-2.0
#include "compiler/expression.h"
#include "tests/unit/expression/parsed_expression.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <string>

namespace moejit::compiler {
namespace {

std::string simplified_text(std::string_view text) { return to_string(simplify(parsed(text))); }

TEST(Simplify, ComputesWhatIsNumbersAlone) {
  EXPECT_EQ(simplified_text("(1 + 2) * gate"), "3 * gate");
  EXPECT_EQ(simplified_text("clamp(up, -(7), 7)"), "clamp(up, -7, 7)");
  EXPECT_EQ(simplified_text("sqrt(16) * gate"), "4 * gate");
}

TEST(Simplify, LeavesNumbersAloneThatFp32DoesNotHave) {
  EXPECT_EQ(simplified_text("exp(100) * gate"), "exp(100) * gate");
  EXPECT_EQ(simplified_text("1e38 * 1e38 * gate"), "1e+38 * 1e+38 * gate");
  EXPECT_EQ(simplified_text("exp(88) * gate").substr(0, 5), "1.651");
}

TEST(Simplify, LeavesOutZerosAndOnes) {
  for (const char* text : {"gate + 0", "0 + gate", "gate - 0", "1 * gate", "gate * 1", "gate / 1",
                           "--gate", "gate + 0 * up"})
    EXPECT_EQ(simplified_text(text), "gate") << text;
  EXPECT_EQ(simplified_text("0 - gate"), "-gate");
  EXPECT_EQ(simplified_text("-1 * gate"), "-gate");
  EXPECT_EQ(simplified_text("0 / gate"), "0");
  EXPECT_EQ(simplified_text("fma(gate, 1, up)"), "gate + up");
  EXPECT_EQ(simplified_text("fma(gate, up, 0)"), "gate * up");
}

// Other divisions have another rounding as a product.
TEST(Simplify, MakesProductsOfDivisionsByPowersOfTwo) {
  EXPECT_EQ(simplified_text("gate / 4"), "gate * 0.25");
  EXPECT_EQ(simplified_text("gate / 3"), "gate / 3");
  EXPECT_EQ(simplified_text("gate / 0"), "gate / 0");
}

TEST(Simplify, LeavesTheOrderOfRoundingsAlone) {
  for (const char* text : {"gate * up * gate", "gate * (up * gate)", "2 * gate * 3",
                           "gate + up + 1", "gate + (up + 1)"})
    EXPECT_EQ(simplified_text(text), text);
}

TEST(Simplify, KeepsWhatIsNotFinite) {
  EXPECT_EQ(simplified_text("log(-1) * gate"), "log(-1) * gate");
  EXPECT_EQ(simplified_text("1 / 0 + gate"), "1 / 0 + gate");
}

TEST(Simplify, TakesFactorsIntoTheBranchBesideAZero) {
  EXPECT_EQ(simplified_text("up * where(gate < 1, 0, gate)"), "where(gate < 1, 0, up * gate)");
  EXPECT_EQ(simplified_text("where(gate < 1, up, 0) * 2"), "where(gate < 1, up * 2, 0)");
  EXPECT_EQ(simplified_text("where(gate < 1, up, 2) * gate"), "where(gate < 1, up, 2) * gate");
}

TEST(Simplify, JoinsSumsThatAreZeroTogether) {
  EXPECT_EQ(simplified_text("where(gate < 1, 0, up) + where(gate < 1, 0, gate)"),
            "where(gate < 1, 0, up + gate)");
  EXPECT_EQ(simplified_text("where(gate < 1, 0, up) + where(gate < 2, 0, gate)"),
            "where(gate < 1, 0, up) + where(gate < 2, 0, gate)");
}

TEST(StraightLine, ComputesEqualPartsOnce) {
  const std::vector<Expression> both = {parsed("silu(gate) * up"), parsed("sigmoid(gate) + up")};
  const StraightLine code = straight_line(both);
  // gate, its sigmoid, up, two products and the sum
  EXPECT_EQ(code.assignments.size(), 6u);
  EXPECT_EQ(std::ranges::count(code.assignments, Operator::kSigmoid, &Assignment::op), 1);
  EXPECT_EQ(evaluate(code, {{"gate", 0.0}, {"up", 3.0}}), (std::vector<double>{0.0, 3.5}));
}

TEST(StraightLine, HasOperandsBeforeWhatUsesThem) {
  const StraightLine code = straight_line(std::vector{parsed("gelu(gate) * gelu_tanh(up) / gate")});
  for (size_t i = 0; i < code.assignments.size(); ++i)
    for (const int32_t operand : code.assignments[i].operands)
      EXPECT_LT(static_cast<size_t>(operand), i);
}

// A chain of 9 has 2^9 leaves as a tree.
TEST(StraightLine, GrowsWithTheFormulaNotWithItsTree) {
  Expression e = Expression::variable("gate");
  for (int i = 0; i < 200; ++i) e = Expression::make(Operator::kSilu, {e});
  EXPECT_EQ(straight_line({&e, 1}).assignments.size(), 401u);
  const Expression slope = differentiate(e, "gate");
  EXPECT_LT(straight_line({&slope, 1}).assignments.size(), 200u * 12);
}

}  // namespace
}  // namespace moejit::compiler
