// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/decision/scatter.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

namespace moejit::tune {
namespace {

TEST(Scatter, IsUnknownWithoutAStep) {
  EXPECT_EQ(Scatter().deviation(), std::numeric_limits<double>::infinity());
}

TEST(Scatter, IsTheDeviationThatHasTheMedianStep) {
  Scatter scatter;
  scatter.add(0.9, 0.9 * std::exp(0.03));
  scatter.add(1.2 * std::exp(0.02), 1.2);
  scatter.add(1.0, 1.0);
  // Half of all steps are below 0.6745 * sqrt(2) deviations of one value.
  EXPECT_NEAR(scatter.deviation(), 0.02 / (0.6745 * std::sqrt(2.0)), 1e-6);
}

TEST(Scatter, DoesNotCountAWildStep) {
  Scatter scatter;
  for (int i = 0; i < 4; ++i) scatter.add(1.0, 1.01);
  const double calm = scatter.deviation();
  scatter.add(1.0, 9.0);
  EXPECT_EQ(scatter.deviation(), calm);
}

}  // namespace
}  // namespace moejit::tune
