// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/choices.h"

#include <string>

namespace moejit::tune {

// The choices that a race proposes for one problem of a whole step.
struct StepChoice {
  std::string problem;
  compiler::Choices choices;
  std::string text_digest;  // of the kernel with these choices; empty if not known
  // What the choices gain for certain: 1 minus the upper bound of the race's ratio. 0 for the usual
  // choices, which gain nothing.
  double certainty = 0.0;

  bool operator==(const StepChoice&) const = default;
};

// Times of a step in one round, in microseconds. They are measured in this order: usual choices,
// tuned choices twice, usual choices again. So a clock that drifts evenly slows both alike.
struct StepTimes {
  double default_first_us = 0.0, tuned_first_us = 0.0;
  double tuned_last_us = 0.0, default_last_us = 0.0;

  bool operator==(const StepTimes&) const = default;
};

}  // namespace moejit::tune
