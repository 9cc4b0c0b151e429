// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/choices.h"

#include <string>

namespace moejit::tune {

// The choices that a race proposes for one problem of a whole step.
struct StepChoice {
  std::string problem;
  compiler::Choices choices;
  std::string text_digest;  // of the kernel with these choices; empty if it is not known
  // What the choices gain for certain: 1 less the upper bound of the race's ratio. 0 for the usual
  // choices, which gain nothing.
  double certainty = 0.0;

  bool operator==(const StepChoice&) const = default;
};

// Times of a step in one round, in microseconds. The order is: with the usual choices, twice with
// the tuned ones, with the usual choices again. A clock that drifts evenly slows both alike.
struct StepTimes {
  double default_first_us = 0.0, tuned_first_us = 0.0;
  double tuned_last_us = 0.0, default_last_us = 0.0;

  bool operator==(const StepTimes&) const = default;
};

}  // namespace moejit::tune
