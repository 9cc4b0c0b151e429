// SPDX-License-Identifier: Apache-2.0
#include "cli/tune/open_measurer.h"

#include "cli/execution/open_engine.h"
#include "cli/execution/open_target.h"

#include <utility>

namespace moejit::cli {

Result<std::unique_ptr<DeviceMeasurer>> open_measurer(const MeasureOptions& options,
                                                      const TuneSubjects& subjects,
                                                      const Terminal& terminal,
                                                      std::string_view without_gpu) {
  MOEJIT_TRY_ASSIGN(OpenedTarget target, open_target(options.target, options.seed, without_gpu));
  MOEJIT_TRY_ASSIGN(std::unique_ptr<runtime::Engine> engine, open_engine(options.cache, terminal));
  return DeviceMeasurer::create(std::move(target), std::move(engine), subjects);
}

RaceTimes race_times(const MeasureOptions& options) {
  return {.block_seconds = 1e-3 * options.block_milliseconds,
          .heat_seconds = options.heat_seconds,
          .most_heat_seconds = 5.0 * options.heat_seconds,
          .lead_seconds = options.heat_seconds / 3.0};
}

}  // namespace moejit::cli
