// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/terminal/terminal.h"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace moejit::cli {

// A part of a long command, and about how long it takes; 0: hardly any time, or unknown.
struct Step {
  std::string name;
  double seconds = 0.0;
};

// Shows on standard error which step a command is at and how long the rest may take. On a terminal
// it is a bar that is redrawn twice a second, elsewhere a line every half minute. Quick commands
// show nothing. It runs on a thread of its own, so that a long step is not silent.
class StepProgress {
 public:
  // The terminal must live longer. `interval` is the time between two updates; 0: twice a second or
  // every half minute, as said above.
  StepProgress(const Terminal& terminal, std::vector<Step> steps,
               std::chrono::milliseconds interval = {});
  // Removes the bar from the terminal.
  ~StepProgress();
  StepProgress(const StepProgress&) = delete;
  StepProgress& operator=(const StepProgress&) = delete;

  // Begins the next step of this name and ends all steps before it. A name that no remaining step
  // has changes nothing.
  void start(std::string_view name);

 private:
  using Clock = std::chrono::steady_clock;
  void show(std::stop_token stop);
  std::string text() const;

  const Terminal& terminal_;
  const std::vector<Step> steps_;
  const std::chrono::milliseconds interval_;
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::size_t current_ = 0;
  bool has_started_ = false;
  Clock::time_point step_began_;
  double spent_seconds_ = 0.0;  // on ended steps whose time was known
  std::jthread shower_;         // the last member: it uses the others
};

// Returns the seconds that are left if steps with `expected_spent` seconds took `spent`, the
// current one has run for `elapsed` of `expected_current`, and `expected_rest` follow. Steps that
// took twice as long as expected make the rest twice as long.
double remaining_seconds(double expected_spent, double spent, double expected_current,
                         double elapsed, double expected_rest);

// Returns "40 s", "3 min" or "2 h": as precise as an estimate is.
std::string duration_text(double seconds);

}  // namespace moejit::cli
