// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/report/html_page.h"
#include "compiler/tuning.h"
#include "runtime/tune/decision/replay.h"

#include <cstddef>

namespace moejit::cli {

// A race and what else the page says of it.
struct ReportedRace {
  const tune::ReplayedRace& race;
  tune::Outcome outcome;
  const compiler::TuningEntry* entry = nullptr;  // in the record; null if the race is not settled
};

// Adds the section of the problem with this number, which links lead to as "problem-1".
void add_race(Element parent, std::size_t number, const ReportedRace& reported);

}  // namespace moejit::cli
