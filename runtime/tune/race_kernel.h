// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/tune/decision/journal_writer.h"
#include "runtime/tune/decision/race.h"
#include "runtime/tune/measurer.h"
#include "runtime/tune/tune_problem.h"

#include <functional>
#include <string>

namespace moejit::tune {

// How long a race of a kernel's versions takes. Rounds run in calls. Between two calls the GPU
// cools, so that the first blocks of a call would be faster than the others; a lead of the usual
// version, whose times do not count, takes their place.
struct RaceTimes {
  double block_seconds = 0.015;  // of launches of one version
  double heat_seconds = 0.6;     // of launches of the usual version before the first round
  double most_heat_seconds = 3.0;
  double lead_seconds = 0.2;  // of a call
  double call_seconds =
      0.8;  // which a call's rounds fill, while no look comes before; one at least
};

// Where a race measures and what it writes.
struct RaceSite {
  Measurer& measurer;
  JournalWriter& journal;
  RaceTimes times;
  std::function<bool()> stops;  // is asked between two rounds; true ends the race there
  RaceRules rules = {};
};

// Races the versions of problems[index]'s kernel until the race is settled or the site stops it.
// Each version first runs once, and one whose results differ in a bit from the usual one's is out,
// as is one that crashes twice, hangs, or fails in a timed round. Blocks and faults go to the
// journal, whose sentences name the versions by their choices. `race` has the rounds of earlier
// sessions. Errors: of opening the problem and of the usual version, which has two tries if it
// crashes; of the journal; of rounds that fail again and again although no version fails alone.
Result<void> race_kernel(const TuneProblem& problem, std::size_t index, const RaceSite& site,
                         Race& race);

}  // namespace moejit::tune
