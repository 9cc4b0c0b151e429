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

// A part of a long command, and about how long it takes; 0: hardly any time, or nobody knows.
struct Step {
  std::string name;
  double seconds = 0.0;
};

// Tells on standard error which step a command is at and how long the rest may take: on a terminal
// by a bar that is drawn anew twice a second, elsewhere by a line every half minute. Commands that
// are quicker say nothing. A thread of its own does it, so that one long step is no silence.
class StepProgress {
 public:
  // The terminal must live longer. `interval` between two looks: 0: as said above.
  StepProgress(const Terminal& terminal, std::vector<Step> steps,
               std::chrono::milliseconds interval = {});
  // Wipes the bar away.
  ~StepProgress();
  StepProgress(const StepProgress&) = delete;
  StepProgress& operator=(const StepProgress&) = delete;

  // The next step of this name begins, and with it the last one and those between have ended. A
  // name that none of the rest has changes nothing.
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
  double spent_seconds_ = 0.0;  // on steps that have ended and whose time was known
  std::jthread shower_;         // the last member: it uses the others
};

// The seconds that are left, where steps with `expected_spent` seconds took `spent`, the current
// one has run for `elapsed` of `expected_current`, and `expected_rest` follow. Steps that took
// twice as long as expected make the rest twice as long.
double remaining_seconds(double expected_spent, double spent, double expected_current,
                         double elapsed, double expected_rest);

// "40 s", "3 min", "2 h": as much as an estimate is good for.
std::string duration_text(double seconds);

}  // namespace moejit::cli
