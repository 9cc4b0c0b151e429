// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/report/html_page.h"
#include "runtime/tune/decision/race.h"
#include "runtime/tune/decision/replay.h"

#include <string>
#include <vector>

namespace moejit::cli {

// What has become of a candidate.
enum class RaceState { kUsual, kWinner, kRacing, kDropped, kRuledOut, kUntimed };
RaceState state_of(const tune::Outcome& outcome, int32_t candidate);
// Returns "winner", "dropped after 2 rounds", "ruled out: spills".
std::string state_text(const tune::Outcome& outcome, int32_t candidate);

// Returns the candidates as the page lists them: the usual choices, then those with times, the
// fastest first, then the others.
std::vector<int32_t> listed_order(const tune::Outcome& outcome);

// Returns the choices that differ from the usual ones; all of them if other knobs are set.
std::string short_choices(const compiler::Choices& choices, const compiler::Choices& usual);

// Draws a dot for each block, in a line of dots for each candidate, with medians and their 95 %
// intervals. A dot shows the block's time as a ratio to the usual choices' time in the same round.
void draw_race(Element parent, const tune::ReplayedRace& race, const tune::Outcome& outcome,
               const tune::RaceBlocks& found);

// Returns whether any block tells its clock or its power.
bool tells_clock_or_power(const tune::RaceBlocks& found);

// Draws clock and power over the rounds: the mean of a round's blocks, with their range where they
// differ. What no block tells is left out.
void draw_clocks(Element parent, const tune::RaceBlocks& found);

}  // namespace moejit::cli
