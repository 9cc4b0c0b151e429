// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/commands.h"
#include "cli/tune/device_measurer.h"
#include "cli/tune/race_kernel.h"
#include "cli/tune/tune_subjects.h"

#include <memory>
#include <string_view>

namespace moejit::cli {

// Opens in this process what measures the subjects; `without_gpu` is as of open_target(). The
// terminal must live longer.
Result<std::unique_ptr<DeviceMeasurer>> open_measurer(const MeasureOptions& options,
                                                      const TuneSubjects& subjects,
                                                      const Terminal& terminal,
                                                      std::string_view without_gpu);

// Returns how long the blocks and the heating of a race take.
RaceTimes race_times(const MeasureOptions& options);

}  // namespace moejit::cli
