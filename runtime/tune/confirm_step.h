// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/tune/race_kernel.h"
#include "runtime/tune/tune_observer.h"
#include "runtime/tune/tune_subjects.h"

#include <string>

namespace moejit::tune {

// Returns the name of a layer's step in journals and records: its calls, and the plan with the
// usual choices. The step of a group's layer is that of a rank without the exchange.
std::string step_name(const compiler::LayerPlan& plan, int64_t tokens);

// Measures the whole step of each layer with the choices that the journal's races propose, until
// they are confirmed or given up, or the site stops it; each goes on from what the journal has of
// it. The observer is warned of a step that cannot be run, and its choices stay as the races left
// them. Errors: of the journal, and of a device that no longer works.
Result<void> confirm_steps(const TuneSubjects& subjects, const MeasuredDevice& device,
                           const RaceSite& site, const std::string& journal_path,
                           TuneObserver& observer);

}  // namespace moejit::tune
