// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/graph/plans.h"

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string_view>

namespace moejit::graph {

// A place where the threads of simulated ranks wait for each other. Kernels of the simulator run
// when somebody waits for a device, and by then all ranks must have made their calls.
class Meeting {
 public:
  explicit Meeting(int32_t ranks) : ranks_(ranks) {}

  // Returns when the threads of all ranks have arrived. Goes on without the others after
  // patience_ms: the kernels then find out which rank is silent.
  void wait(int64_t patience_ms);
  // Lets all threads go on, now and later.
  void abort();

 private:
  int32_t ranks_;
  std::mutex mutex_;
  std::condition_variable all_have_come_;
  int32_t come_ = 0;
  int64_t meetings_ = 0;  // meetings that have taken place
  bool is_aborted_ = false;
};

// Makes ready_group_plan() find a prepared layer of a group by its text, until it is removed. Calls
// wait in `meeting` for other ranks, at most patience_ms; it is NULL with GPUs. Throws the errors
// of moejit_plan_get_info and its neighbors.
void add_group_plan(const char* text, moejit_plan* layer, moejit_device* device, Meeting* meeting,
                    int64_t patience_ms);
// Forgets a layer, before the host destroys it. No call of it may be under way.
void remove_group_plan(const char* text);

// Returns the layer of a text with a group for tensors on `device`. The host has prepared it, and
// owns it and all that it points to. Throws if the process has no such layer, or if its group is on
// another device.
const ReadyPlan& ready_group_plan(std::string_view text, std::string_view group, DLDevice device);

// Runs the kernels of a call of simulated ranks: if all ranks make it, when they have. Does nothing
// for other plans, where kernels follow in the order of the stream.
void run_simulated_ranks(const ReadyPlan& ready, bool is_of_all_ranks);

}  // namespace moejit::graph
