// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/trial/open_engine.h"
#include "runtime/tune/device_measurer.h"
#include "runtime/tune/race_kernel.h"
#include "runtime/tune/tune_observer.h"
#include "runtime/tune/tune_subjects.h"

#include <cstdint>
#include <memory>
#include <string>

namespace moejit::tune {

// On what a tuner measures, and how.
struct MeasureOptions {
  std::string target = "auto";  // as of open_target()
  std::string without_gpu;      // "
  trial::CacheOptions cache;
  double candidate_seconds = 60.0;  // in which a candidate must be made and run once
  double block_milliseconds = 100.0;
  double heat_seconds = 0.6;
  uint64_t seed = 0;
};

// Opens in this process what measures the subjects. The observer hears the warnings of the kernel
// cache and must live longer.
Result<std::unique_ptr<DeviceMeasurer>> open_measurer(const MeasureOptions& options,
                                                      const TuneSubjects& subjects,
                                                      TuneObserver& observer);

// Returns how long the blocks and the heating of a race take.
RaceTimes race_times(const MeasureOptions& options);

}  // namespace moejit::tune
