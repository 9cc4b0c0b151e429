// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/terminal/terminal.h"
#include "cli/tune/race_kernel.h"

#include <string>
#include <vector>

namespace moejit::cli {

// Returns the header of a new session in a journal, measured on this device now.
tune::Session new_session(const MeasuredDevice& device);

// Returns an error (kInvalidValue) if a journal that is there has times of another GPU.
Result<void> check_journal_gpu(const std::string& path, const std::string& gpu);

// Returns the seconds of "90s", "20m", "1.5h" or "45" (seconds). Error kUsage names the option.
Result<double> parse_duration(std::string_view option, const std::string& text);

// Compiles the candidates of all problems, several at once. One that does not compile is found when
// its race begins. Errors: those of the measurer.
Result<void> compile_candidates(const std::vector<TuneProblem>& problems, const RaceSite& site,
                                const Terminal& terminal);

// Races all problems, one after the other, until the site stops it; each goes on from what the
// journal has of it. A problem whose kernel cannot be run is told on standard error and left out.
// Errors: of the journal, and of a device that no longer works.
Result<void> race_all(const std::vector<TuneProblem>& problems, const MeasuredDevice& device,
                      const RaceSite& site, const std::string& journal_path,
                      const Terminal& terminal);

}  // namespace moejit::cli
