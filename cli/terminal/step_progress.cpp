// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/step_progress.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <utility>

namespace moejit::cli {
namespace {

using namespace std::chrono_literals;
using Seconds = std::chrono::duration<double>;

double sum(const std::vector<Step>& steps, size_t begin, size_t end) {
  double seconds = 0.0;
  for (size_t i = begin; i < end; ++i) seconds += steps[i].seconds;
  return seconds;
}

}  // namespace

double remaining_seconds(double expected_spent, double spent, double expected_current,
                         double elapsed, double expected_rest) {
  // During the first second the machine's speed is unknown.
  const double slowness = expected_spent > 0.0 && spent > 1.0 ? spent / expected_spent : 1.0;
  return std::max(expected_current * slowness - elapsed, 0.0) + expected_rest * slowness;
}

std::string duration_text(double seconds) {
  const auto rounded = [](double value) {
    return static_cast<int64_t>(std::max(std::round(value), 1.0));
  };
  if (seconds < 10.0) return fmt::format("{} s", rounded(seconds));
  if (seconds < 55.0) return fmt::format("{} s", 5 * rounded(seconds / 5.0));
  if (seconds < 5400.0) return fmt::format("{} min", rounded(seconds / 60.0));
  return fmt::format("{} h", rounded(seconds / 3600.0));
}

StepProgress::StepProgress(const Terminal& terminal, std::vector<Step> steps,
                           std::chrono::milliseconds interval)
    : terminal_(terminal),
      steps_(std::move(steps)),
      interval_(interval.count() > 0        ? interval
                : terminal.is_interactive() ? 500ms
                                            : 30s),
      shower_([this](std::stop_token stop) { show(std::move(stop)); }) {}

StepProgress::~StepProgress() {
  shower_.request_stop();
  shower_.join();
  terminal_.clear_progress();
}

void StepProgress::start(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto begin = steps_.begin() + static_cast<std::ptrdiff_t>(has_started_ ? current_ + 1 : 0);
  const auto found =
      std::find_if(begin, steps_.end(), [name](const Step& step) { return step.name == name; });
  if (found == steps_.end()) return;
  const Clock::time_point now = Clock::now();
  if (has_started_ && steps_[current_].seconds > 0.0)
    spent_seconds_ += Seconds(now - step_began_).count();
  current_ = static_cast<size_t>(found - steps_.begin());
  has_started_ = true;
  step_began_ = now;
}

std::string StepProgress::text() const {
  const Step& step = steps_[current_];
  const double left = remaining_seconds(sum(steps_, 0, current_), spent_seconds_, step.seconds,
                                        Seconds(Clock::now() - step_began_).count(),
                                        sum(steps_, current_ + 1, steps_.size()));
  return left < 1.0 ? step.name : fmt::format("{}, about {} left", step.name, duration_text(left));
}

void StepProgress::show(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, stop, interval_, [&stop] { return stop.stop_requested(); })) {
    if (has_started_)
      terminal_.report_progress(text(), static_cast<int64_t>(current_) + 1, std::ssize(steps_));
  }
}

}  // namespace moejit::cli
