// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/tuning.h"
#include "runtime/tune/journal.h"
#include "runtime/tune/race.h"

#include <vector>

namespace moejit::tune {

// Decides the races of a journal, as replay() does, and returns a record for each GPU of its
// sessions. It has an entry for each problem whose race is settled: the winner, with its ratio, or
// the default. Times are medians over all blocks of the journal. `date` and `version` are those in
// the context of the last session that measured the problem. Errors: those of replay(), and of
// compiler::parse_gpu_identity() for the GPU of a session.
Result<std::vector<compiler::TuningRecord>> tuned_records(const Journal& journal,
                                                          const RaceRules& rules = {});

}  // namespace moejit::tune
