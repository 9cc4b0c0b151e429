// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/report/element.h"
#include "runtime/tune/decision/replay.h"

namespace moejit::cli {

// Returns whether any block tells its clock or its power.
bool tells_clock_or_power(const tune::RaceBlocks& found);

// Draws clock and power over the rounds: the mean of a round's blocks, with their range where they
// differ. What no block tells is left out.
void draw_clocks(Element parent, const tune::RaceBlocks& found);

}  // namespace moejit::cli
