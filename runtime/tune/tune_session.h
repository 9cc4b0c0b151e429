// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/tune/race_kernel.h"
#include "runtime/tune/tune_observer.h"

#include <string>
#include <vector>

namespace moejit::tune {

// Returns the header of a new session in a journal, measured on this device now.
Session new_session(const MeasuredDevice& device);

// Returns an error (kInvalidValue) if a journal that is there has times of another GPU.
Result<void> check_journal_gpu(const std::string& path, const std::string& gpu);

// Compiles the candidates of all problems, several at once. One that does not compile is found when
// its race begins. Errors: those of the measurer.
Result<void> compile_candidates(const std::vector<TuneProblem>& problems, const RaceSite& site,
                                TuneObserver& observer);

// Races all problems, one after the other, until the site stops it; each goes on from what the
// journal has of it. The observer is warned of a problem whose kernel cannot be run; it is left
// out. Errors: of the journal, and of a device that no longer works.
Result<void> race_all(const std::vector<TuneProblem>& problems, const MeasuredDevice& device,
                      const RaceSite& site, const std::string& journal_path,
                      TuneObserver& observer);

}  // namespace moejit::tune
