// SPDX-License-Identifier: Apache-2.0
#include "runtime/trial/group_times.h"

#include <algorithm>
#include <chrono>
#include <span>

namespace moejit::trial {
namespace {

// Marks the time after each kernel of a rank's calls.
class Marks : public runtime::LaunchObserver {
 public:
  explicit Marks(runtime::Device& device) : device_(device) {}
  Result<void> before(std::size_t) override { return {}; }
  Result<void> after(std::size_t kernel) override {
    kernels_.push_back(kernel);
    return mark();
  }
  // Marks the beginning of a call.
  Result<void> mark() {
    MOEJIT_TRY_ASSIGN(void* const made, device_.record_mark(nullptr));
    marks_.push_back(made);
    return {};
  }
  // Returns the microseconds of each kernel, from the mark before it to its own.
  Result<std::vector<double>> times() const {
    std::vector<double> times;
    for (std::size_t i = 0; i + 1 < marks_.size(); ++i) {
      MOEJIT_TRY_ASSIGN(const double time, device_.microseconds_between(marks_[i], marks_[i + 1]));
      times.push_back(time);
    }
    return times;
  }
  const std::vector<std::size_t>& kernels() const { return kernels_; }

 private:
  runtime::Device& device_;
  std::vector<std::size_t> kernels_;
  std::vector<void*> marks_;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Returns each rank's median time of the kernels [first, last) together.
std::vector<double> medians(const GroupTimes& times, std::size_t first, std::size_t last) {
  std::vector<double> medians;
  for (const auto& steps : times.of_rank) {
    std::vector<double> sums;
    for (const auto& step : steps) {
      double sum = 0.0;
      for (std::size_t i = first; i < last; ++i) sum += step[i];
      sums.push_back(sum);
    }
    medians.push_back(median(std::move(sums)));
  }
  return medians;
}

// Makes a step on all ranks. If there are marks, the ranks mark their kernels.
Result<void> make_step(Trial& trial, int32_t ranks, bool is_training, std::span<Marks> marks) {
  for (int32_t rank = 0; rank < ranks; ++rank) {
    Marks* const own = marks.empty() ? nullptr : &marks[static_cast<std::size_t>(rank)];
    if (own != nullptr) MOEJIT_TRY(own->mark());
    MOEJIT_TRY(trial.call_on(rank, "forward", own));
    if (is_training) MOEJIT_TRY(trial.call_on(rank, "backward", own));
  }
  return {};
}

}  // namespace

double GroupTimes::slowest(std::size_t first, std::size_t last) const {
  return std::ranges::max(medians(*this, first, last));
}
double GroupTimes::fastest(std::size_t first, std::size_t last) const {
  return std::ranges::min(medians(*this, first, last));
}

Result<GroupTimes> measure_group(Trial& trial, Devices& devices, const GroupTiming& timing) {
  using Clock = std::chrono::steady_clock;
  const int32_t ranks = devices.ranks();
  const auto begin = Clock::now();
  // Synchronizes often: with long queues, a kernel that waits for a peer could wait too long.
  while (std::chrono::duration<double>(Clock::now() - begin).count() < timing.hot_seconds) {
    for (int i = 0; i < 4; ++i) MOEJIT_TRY(make_step(trial, ranks, timing.is_training, {}));
    MOEJIT_TRY(devices.synchronize());
  }
  std::vector<std::vector<Marks>> steps;
  for (int32_t step = 0; step < timing.repeat; ++step) {
    std::vector<Marks>& marks = steps.emplace_back();
    for (int32_t rank = 0; rank < ranks; ++rank) marks.emplace_back(devices.device(rank));
    MOEJIT_TRY(make_step(trial, ranks, timing.is_training, marks));
  }
  MOEJIT_TRY(devices.synchronize());
  GroupTimes measured{.kernels = steps.front().front().kernels(), .of_rank = {}};
  measured.of_rank.resize(static_cast<std::size_t>(ranks));
  for (const std::vector<Marks>& step : steps)
    for (std::size_t rank = 0; rank < step.size(); ++rank) {
      MOEJIT_TRY_ASSIGN(std::vector<double> times, step[rank].times());
      measured.of_rank[rank].push_back(std::move(times));
    }
  return measured;
}

}  // namespace moejit::trial
