// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/report/element.h"

#include <cstdint>
#include <string>
#include <vector>

namespace moejit::cli {

// Times of a layer's whole step with the usual choices and with those of a record.
struct StepFigure {
  std::string layer;
  double default_us = 0.0, tuned_us = 0.0;
  double ratio = 1.0;            // median of the rounds' quotients: tuned time by the default's
  double low = 1.0, high = 1.0;  // 95 % interval of the ratio
  int32_t rounds = 0;
};

// Adds a heading, a table and a drawing of the ratios with their intervals.
void add_steps(Element parent, const std::vector<StepFigure>& steps);

}  // namespace moejit::cli
