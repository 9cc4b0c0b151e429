// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device.h"

namespace moejit::cli {

// A mark of the time on a device's default stream, given back at the end.
class TimeMark {
 public:
  explicit TimeMark(runtime::Device& device) : device_(device) {}
  ~TimeMark() {
    if (mark_ != nullptr) device_.release_mark(mark_);
  }
  TimeMark(const TimeMark&) = delete;
  TimeMark& operator=(const TimeMark&) = delete;

  // Once.
  Result<void> record() {
    MOEJIT_TRY_ASSIGN(mark_, device_.record_mark(nullptr));
    return {};
  }
  // Microseconds from an earlier mark to this one; waits for this one.
  Result<double> since(const TimeMark& start) const {
    return device_.microseconds_between(start.mark_, mark_);
  }

 private:
  runtime::Device& device_;
  void* mark_ = nullptr;
};

}  // namespace moejit::cli
