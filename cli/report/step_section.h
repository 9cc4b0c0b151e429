// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/report/element.h"
#include "compiler/tuning.h"

#include <vector>

namespace moejit::cli {

// Adds a heading, a table and a drawing of the ratios with their intervals.
void add_steps(Element parent, const std::vector<compiler::TuningStep>& steps);

}  // namespace moejit::cli
