// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/call.h"
#include "runtime/device.h"

#include <cstddef>
#include <deque>
#include <vector>

namespace moejit::measure {

// A mark of the time on a device's default stream; its destructor releases it.
class TimeMark {
 public:
  explicit TimeMark(runtime::Device& device) : device_(device) {}
  ~TimeMark() {
    if (mark_ != nullptr) device_.release_mark(mark_);
  }
  TimeMark(const TimeMark&) = delete;
  TimeMark& operator=(const TimeMark&) = delete;

  // Records the mark. Must be called only once.
  Result<void> record() {
    MOEJIT_TRY_ASSIGN(mark_, device_.record_mark(nullptr));
    return {};
  }
  // Returns the microseconds from an earlier mark to this one; waits for this one.
  Result<double> since(const TimeMark& start) const {
    return device_.microseconds_between(start.mark_, mark_);
  }

 private:
  runtime::Device& device_;
  void* mark_ = nullptr;
};

// Marks the time before and after every kernel of the calls that it observes.
class KernelTimer final : public runtime::LaunchObserver {
 public:
  explicit KernelTimer(runtime::Device& device) : device_(device) {}

  Result<void> before(size_t kernel_index) override {
    return spans_.emplace_back(device_, kernel_index).start.record();
  }
  Result<void> after(size_t /*kernel_index*/) override { return spans_.back().end.record(); }

  struct Sample {
    size_t kernel_index = 0;
    double microseconds = 0.0;
  };
  // Returns all launches so far in their order; waits for them, and forgets them.
  Result<std::vector<Sample>> take_samples() {
    MOEJIT_TRY(device_.synchronize(nullptr));
    std::vector<Sample> samples;
    for (const Span& span : spans_) {
      MOEJIT_TRY_ASSIGN(const double elapsed, span.end.since(span.start));
      samples.push_back({span.kernel_index, elapsed});
    }
    spans_.clear();
    return samples;
  }

 private:
  struct Span {
    Span(runtime::Device& device, size_t index) : kernel_index(index), start(device), end(device) {}
    size_t kernel_index;
    TimeMark start, end;
  };

  runtime::Device& device_;
  std::deque<Span> spans_;
};

}  // namespace moejit::measure
