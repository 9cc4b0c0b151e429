// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/tune/race_kernel.h"
#include "runtime/tune/tune_observer.h"

#include <string>
#include <vector>

namespace moejit::tune {

// Returns the header of a journal's new session, which begins now on this device.
Session new_session(const MeasuredDevice& device);

// Returns the error kInvalidValue if there is a journal at `path` and it has times of another GPU.
Result<void> check_journal_gpu(const std::string& path, const std::string& gpu);

// Compiles the candidates of all problems, several at once. A candidate that does not compile is
// found when its race begins. Returns the errors of the measurer.
Result<void> compile_candidates(const std::vector<TuneProblem>& problems, const RaceSite& site,
                                TuneObserver& observer);

// Races all problems, one after the other, until the site stops it. Each race goes on from its
// rounds in the journal. If a problem's kernel cannot be run, the observer is warned and the
// problem is left out. Returns errors of the journal, and of a device that no longer works.
Result<void> race_all(const std::vector<TuneProblem>& problems, const MeasuredDevice& device,
                      const RaceSite& site, const std::string& journal_path,
                      TuneObserver& observer);

}  // namespace moejit::tune
