// SPDX-License-Identifier: Apache-2.0
// How far checks let derivatives of a user's formula be off, near a choice and away from it.
#include "runtime/check/check_activation.h"
#include "tests/support/matchers.h"

#include <cmath>
#include <gtest/gtest.h>

namespace moejit::check {
namespace {

double silu(double x) { return x / (1.0 + std::exp(-x)); }

TEST(SlopeErrors, ReachTheOtherBranchWhereRoundingDecides) {
  const auto formula = compiler::parse_activation("min(gate, silu(up))");
  ASSERT_TRUE(testing::succeeded(formula));
  const reference::GatedActivation functions = reference_of(*formula);
  constexpr double kUp = 1.5;
  const double tie = silu(kUp);
  // The slope of gate is 1 below the tie and 0 above. A kernel's silu is off by 2^-20 or so.
  for (const double gate : {tie * (1.0 - 0x1p-24), tie * (1.0 + 0x1p-24)}) {
    EXPECT_GE(functions.gate_slope_error(gate, kUp), 1.0);
    EXPECT_GE(functions.up_slope_error(gate, kUp), 1.0);
  }
  for (const double gate : {tie * (1.0 - 0x1p-10), tie * (1.0 + 0x1p-10)}) {
    EXPECT_LT(functions.gate_slope_error(gate, kUp), 0x1p-22);
    EXPECT_LT(functions.up_slope_error(gate, kUp), 0x1p-15);
  }
}

TEST(SlopeErrors, AreNoneOfPresets) {
  const reference::GatedActivation functions = reference_of({});
  EXPECT_FALSE(functions.gate_slope_error);
  EXPECT_FALSE(functions.up_slope_error);
}

}  // namespace
}  // namespace moejit::check
