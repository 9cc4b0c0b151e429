// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/report/element.h"
#include "cli/report/race_blocks.h"

namespace moejit::cli {

// Returns whether any block tells its clock or its power.
bool tells_clock_or_power(const RaceBlocks& found);

// Draws clock and power over the rounds: the mean of a round's blocks, with their range where they
// differ. What no block tells is left out.
void draw_clocks(Element parent, const RaceBlocks& found);

}  // namespace moejit::cli
