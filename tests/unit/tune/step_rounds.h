// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/tune/decision/step_confirmation.h"
#include "tests/support/matchers.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <span>
#include <string>
#include <vector>

// Rounds for the tests of whole steps.
namespace moejit::tune {

// Returns the times of a round in which the usual step takes 100 us and the tuned one that many
// percent of it.
inline StepTimes step_times(double percent) {
  return {.default_first_us = 100,
          .tuned_first_us = percent,
          .tuned_last_us = percent,
          .default_last_us = 100};
}

// Adds so many equal rounds, or fewer if no more are wanted.
inline void measure(StepConfirmation& step, double percent, int32_t rounds) {
  for (int32_t i = 0; i < rounds && step.state() == StepState::kMeasuring; ++i)
    ASSERT_TRUE(testing::succeeded(step.add(step_times(percent))));
}

// Returns choices of so many problems, p100, p101 and on, the first the most certain.
inline std::vector<StepChoice> step_choices(int32_t count) {
  std::vector<StepChoice> choices;
  for (int32_t i = 0; i < count; ++i)
    choices.push_back({.problem = "p" + std::to_string(100 + i),
                       .choices = {{"stages", 4}},
                       .text_digest = "d",
                       .certainty = 0.5 - 0.001 * i});
  return choices;
}

inline std::vector<std::string> problems_of(std::span<const StepChoice> choices) {
  std::vector<std::string> problems;
  for (const StepChoice& choice : choices) problems.push_back(choice.problem);
  return problems;
}

}  // namespace moejit::tune
