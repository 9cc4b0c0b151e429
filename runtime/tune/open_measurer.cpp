// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/open_measurer.h"

#include "runtime/trial/open_target.h"

#include <string_view>
#include <utility>

namespace moejit::tune {

Result<std::unique_ptr<DeviceMeasurer>> open_measurer(const MeasureOptions& options,
                                                      const TuneSubjects& subjects,
                                                      TuneObserver& observer) {
  MOEJIT_TRY_ASSIGN(trial::OpenedTarget target,
                    trial::open_target(options.target, options.seed, options.without_gpu));
  const auto warn = [&observer](std::string_view text) { observer.warn(text); };
  MOEJIT_TRY_ASSIGN(std::unique_ptr<runtime::Engine> engine,
                    trial::open_engine(options.cache, warn));
  return DeviceMeasurer::create(std::move(target), std::move(engine), subjects);
}

RaceTimes race_times(const MeasureOptions& options) {
  return {.block_seconds = 1e-3 * options.block_milliseconds,
          .heat_seconds = options.heat_seconds,
          .most_heat_seconds = 5.0 * options.heat_seconds,
          .lead_seconds = options.heat_seconds / 3.0};
}

}  // namespace moejit::tune
