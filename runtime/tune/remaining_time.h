// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace moejit::tune {

// A problem of a sweep, as the guess of its remaining time sees it.
struct ProblemTime {
  std::string kind;               // kind_of_problem()
  std::size_t candidates = 0;     // that are measured; 0: it was settled before the sweep
  bool opens_subject = false;     // the first problem of a layer or case, which is opened for it
  std::optional<double> seconds;  // that it took; none: it has not been measured to its end
};

// Returns the kind of kernel of a problem, the first word of its name: "grouped_gemm".
std::string kind_of_problem(std::string_view name);

// Guesses the seconds that the problems behind the first `done` take. A candidate takes as long as
// those of its kind did in the mean, else as those of all kinds; what the problems that opened
// their subjects took beyond that is added for each subject that is still to be opened. How much a
// problem is worth has no part in it, since a block takes the same time whatever kernel is in it.
// Returns none if no problem was measured.
std::optional<double> remaining_seconds(std::span<const ProblemTime> problems, std::size_t done);

}  // namespace moejit::tune
