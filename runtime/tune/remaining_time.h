// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace moejit::tune {

// What the guess of a sweep's remaining time knows of one of its problems.
struct ProblemTime {
  std::string kind;            // kind_of_problem()
  std::size_t candidates = 0;  // candidates to measure; 0: the problem was settled before the sweep
  bool opens_subject = false;  // whether it is the first of its layer or case, and opens it
  std::optional<double> seconds;  // that it took; none: not measured to its end yet
};

// Returns the kind of a problem's kernel, which is the first word of its name: "grouped_gemm".
std::string kind_of_problem(std::string_view name);

// Guesses the seconds that the problems after the first `done` take. A candidate takes the mean
// time of candidates of its kind, or, if none was measured, of all kinds. Problems that opened
// their subjects took longer; the difference is added for each subject that is still to be opened.
// A problem's worth plays no part, since a block takes the same time whatever kernel is in it.
// Returns none if no problem was measured.
std::optional<double> remaining_seconds(std::span<const ProblemTime> problems, std::size_t done);

}  // namespace moejit::tune
