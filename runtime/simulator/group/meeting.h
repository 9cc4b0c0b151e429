// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator/group/world_clock.h"

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace moejit::runtime {

// A place in the streams of all ranks where they meet. None goes on before all have come, and each
// then knows what all did before. An abandoned meeting holds nobody up.
class Meeting {
 public:
  // `work` is done once, when all ranks have come, and never if it is abandoned before.
  Meeting(int32_t ranks, std::string name, std::function<void()> work)
      : ranks_(ranks), name_(std::move(name)), work_(std::move(work)) {}

  const std::string& name() const { return name_; }
  bool is_over() const { return come_ == ranks_ || is_abandoned_; }
  bool is_abandoned() const { return is_abandoned_; }
  void abandon() { is_abandoned_ = come_ != ranks_; }
  // What all ranks know, once it is over.
  const WorldClock& clock() const { return clock_; }

  // Records that a rank has arrived, and adds what it knows.
  void come(const WorldClock& known) {
    clock_.join(known);
    if (++come_ == ranks_ && !is_abandoned_) work_();
  }

 private:
  int32_t ranks_;
  int32_t come_ = 0;
  bool is_abandoned_ = false;
  std::string name_;
  std::function<void()> work_;
  WorldClock clock_;
};

}  // namespace moejit::runtime
