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
  double hot_seconds = 0.0;  // of steps before them
};

// The times of the kernels of steps that follow each other without a pause, in microseconds. The
// time of a kernel begins with the end of the one before it, and has the wait for peers in it.
struct GroupTimes {
  std::vector<std::size_t> kernels;                       // of a step, in the plan's kernels
  std::vector<std::vector<std::vector<double>>> of_rank;  // [rank][step][kernel]

  // Return the median of the kernels [first, last) of a step together, on the slowest and on the
  // fastest rank.
  double slowest(std::size_t first, std::size_t last) const;
  double fastest(std::size_t first, std::size_t last) const;
};

// Times steps on all ranks of a group: their kernels, behind steps that heat the GPUs. Errors:
// those of the calls.
Result<GroupTimes> measure_group(Trial& trial, GroupDevices& devices, const GroupTiming& timing);

}  // namespace moejit::trial
