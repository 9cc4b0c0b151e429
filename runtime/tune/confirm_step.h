// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/tune/race_kernel.h"
#include "runtime/tune/tune_observer.h"
#include "runtime/tune/tune_subjects.h"

#include <string>

namespace moejit::tune {

// Returns the name of a layer's step in journals and records. It has the step's calls, and the plan
// with the usual choices. For a layer of a group, the step is a rank's step without the exchange.
std::string step_name(const compiler::Plan& plan, int64_t tokens);

// Measures the whole step of each layer with the choices that the journal's races propose. Ends
// when these are confirmed or given up, or the site stops it. Each step goes on from its rounds in
// the journal. If a step cannot be run, the observer is warned, and its choices stay as the races
// left them. Returns the errors of the journal, and the error of a device that no longer works.
Result<void> confirm_steps(const TuneSubjects& subjects, const MeasuredDevice& device,
                           const RaceSite& site, const std::string& journal_path,
                           TuneObserver& observer);

}  // namespace moejit::tune
