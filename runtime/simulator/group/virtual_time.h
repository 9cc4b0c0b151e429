// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace moejit::runtime {

// The time of a group in nanoseconds. It stands still while anybody can go on, so that a rank that
// is merely slow is never late. When nobody can, it goes to the earliest deadline that a waiting
// thread has named. Where threads only look at the timer, it goes in steps that double until
// something happens.
class VirtualTime {
 public:
  uint64_t now() const { return now_; }
  // Passes until `deadline`. Where threads look at the timer it passes by a step, but not beyond
  // the deadline (0: none). Returns false once nothing has happened for an hour.
  bool pass(uint64_t deadline, bool by_step) {
    if (now_ - last_event_ > kLongest) return false;
    const uint64_t next = by_step ? now_ + step_ : deadline;
    if (by_step) step_ *= 2;
    now_ = std::max(now_, deadline == 0 ? next : std::min(next, deadline));
    return true;
  }
  void something_happened() {
    step_ = kShortestStep;
    last_event_ = now_;
  }

 private:
  static constexpr uint64_t kShortestStep = 1000;
  static constexpr uint64_t kLongest = 3'600'000'000'000;
  uint64_t now_ = 1'000'000'000;
  uint64_t last_event_ = now_;
  uint64_t step_ = kShortestStep;
};

}  // namespace moejit::runtime
