// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/trial/trial.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace moejit::trial {

// How a group's steps are timed.
struct GroupTiming {
  bool is_training = false;  // whether a step has a backward call
  int32_t repeat = 20;       // timed steps, 1 or more
  double hot_seconds = 0.0;  // seconds of steps before the timed ones
};

// The times, in microseconds, of the kernels of steps that follow each other without a pause. A
// kernel's time begins when the kernel before it ends, so it includes the wait for peers.
struct GroupTimes {
  std::vector<std::size_t> kernels;  // the kernels of a step, by index into the plan's kernels
  std::vector<std::vector<std::vector<double>>> of_rank;  // [rank][step][kernel]

  // Return the median time of a step's kernels [first, last) together, on the slowest and on the
  // fastest rank.
  double slowest(std::size_t first, std::size_t last) const;
  double fastest(std::size_t first, std::size_t last) const;
};

// Times the kernels of steps on all ranks of a group, after steps that heat the GPUs. Returns the
// errors of the calls.
Result<GroupTimes> measure_group(Trial& trial, Devices& devices, const GroupTiming& timing);

}  // namespace moejit::trial
