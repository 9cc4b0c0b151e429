// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/tune/decision/journal_writer.h"
#include "runtime/tune/decision/race.h"
#include "runtime/tune/measurer.h"
#include "runtime/tune/tune_problem.h"
#include "runtime/tune/watched_process.h"

#include <functional>
#include <span>

namespace moejit::tune {

// How long a race of a kernel's versions takes. Rounds run in calls. Between two calls the GPU
// cools, so the first blocks of a call would be faster than the others. Therefore a call begins
// with a lead of the usual version, whose times do not count.
struct RaceTimes {
  double block_seconds = 0.015;  // seconds of launches of one version
  double heat_seconds = 0.6;     // the usual version is launched so long before the first round
  double most_heat_seconds = 3.0;
  double lead_seconds = 0.2;  // the lead of a call
  double call_seconds =
      0.8;  // the rounds of a call, unless a look comes before; at least one round
  double candidate_seconds = 60.0;  // a version may take so long to be made and to run once
};

// Where a race measures, and where it writes.
struct RaceSite {
  Measurer& measurer;
  Watch& watch;  // of this process
  JournalWriter& journal;
  RaceTimes times = {};
  std::function<bool()> stops = {};  // is asked between two rounds; true ends the race
  RaceRules rules = {};
  std::span<const Loss> losses = {};  // of the processes before
};

// Races the versions of problems[index]'s kernel until the race is settled or the site stops it.
// Each version first runs once. A version is out if its results differ in a bit from the usual
// version's, or if it fails or hangs. If it crashed, it gets a second try, since a system without
// memory ends processes, too. After lost or failed rounds each version is timed alone: one that
// fails again is out. Blocks and faults go to the journal, which names versions by their choices.
// `race` has the rounds of earlier sessions.
//
// Returns errors of opening the problem and of the usual version, which also has a second try.
// Returns errors of the journal, and of rounds that fail again and again although no version fails
// alone. If the measurer is no longer usable, returns the error that ended it.
Result<void> race_kernel(const TuneProblem& problem, std::size_t index, const RaceSite& site,
                         Race& race);

}  // namespace moejit::tune
