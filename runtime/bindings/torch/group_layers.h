// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/c/moejit_group.h"
#include "runtime/bindings/torch/layers.h"

#include <condition_variable>
#include <cstdint>
#include <dlpack/dlpack.h>
#include <mutex>
#include <string_view>

namespace moejit::torch {

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

// One rank's layer of a group that is ready for calls, and what operators need of its plan. The
// host has prepared it, and owns all that it points to.
struct ReadyGroupLayer {
  moejit_plan* layer = nullptr;
  DLDevice place{};            // of its device
  ReadyLayer ready;            // its device and its plan; has no layer
  Meeting* meeting = nullptr;  // of simulated ranks; NULL with GPUs
  int64_t patience_ms = 0;     // how long they wait there

  // Runs a simulated rank's kernels, once all ranks have made their calls. Does nothing on a GPU,
  // where kernels follow in the order of the stream.
  void run_call_in_simulator() const;
  // Runs a simulated rank's kernels at once, without waiting for other ranks.
  void run_simulator() const;
};

// Returns the layer of a text for tensors on `device`. It stays until the host removes it, when no
// module is left that calls it. Threads may call it at any time. Throws if the text is of one rank,
// if the process has no such layer, or if its group is on another device.
const ReadyGroupLayer& ready_group_layer(std::string_view text, DLDevice device);

}  // namespace moejit::torch
