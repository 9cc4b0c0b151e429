// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/scales.h"
#include "tests/unit/support_tests/special_floats.h"

#include <cfloat>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

namespace moejit::reference {
namespace {

// A column with this history, and the scale 2.
ScaleState column(std::vector<float> history) {
  return {.columns = 1, .amax_history = std::move(history), .scale = {2.0F}};
}

TEST(DelayedScale, TakesTheLargestOfAllStepsAndForgetsTheOldest) {
  ScaleState state = column({7.0F, 14.0F, 1.0F, 2.0F});
  update_scales(state, {});
  EXPECT_EQ(state.amax_history, (std::vector<float>{0.0F, 1.0F, 2.0F, 7.0F}));
  EXPECT_EQ(state.scale[0], 32.0F);  // 448 / 14, which counts for the last time
  record_amax(state, 0, 3.5F);
  record_amax(state, 0, 2.5F);
  update_scales(state, {});
  EXPECT_EQ(state.amax_history, (std::vector<float>{0.0F, 2.0F, 7.0F, 3.5F}));
  EXPECT_EQ(state.scale[0], 64.0F);
}

TEST(DelayedScale, TakesTheMostRecentStepWhereAsked) {
  ScaleState state = column({7.0F, 14.0F, 1.0F});
  update_scales(state, {.largest = 57344.0F / 4, .is_most_recent = true});
  EXPECT_EQ(state.amax_history, (std::vector<float>{0.0F, 1.0F, 7.0F}));
  EXPECT_EQ(state.scale[0], 2048.0F);
}

TEST(DelayedScale, LeavesAColumnThatNothingWasRecordedFor) {
  ScaleState state = column({0.0F, 14.0F, 1.0F});
  update_scales(state, {});
  EXPECT_EQ(state.amax_history, (std::vector<float>{0.0F, 14.0F, 1.0F}));
  EXPECT_EQ(state.scale[0], 2.0F);
}

TEST(DelayedScale, KeepsTheScaleWhileAnInfinityIsInTheHistory) {
  ScaleState state = column({kInf, 1.0F, 1.0F});
  update_scales(state, {});
  EXPECT_EQ(state.amax_history, (std::vector<float>{0.0F, 1.0F, kInf}));
  EXPECT_EQ(state.scale[0], 2.0F);
  for (const float scale : {2.0F, 2.0F, 64.0F}) {  // infinity counts twice more
    record_amax(state, 0, 7.0F);
    update_scales(state, {});
    EXPECT_EQ(state.scale[0], scale);
  }
}

TEST(DelayedScale, IsFiniteForTheSmallestMagnitudes) {
  ScaleState state = column({1e-40F});
  update_scales(state, {});
  EXPECT_EQ(state.amax_history, std::vector<float>{0.0F});
  EXPECT_EQ(state.scale[0], FLT_MAX);
}

TEST(DelayedScale, IgnoresNan) {
  ScaleState state = column({1.0F, 0.0F});
  record_amax(state, 0, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(state.amax_history[0], 1.0F);
}

}  // namespace
}  // namespace moejit::reference
