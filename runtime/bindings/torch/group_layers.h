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

// A place where the threads of simulated ranks wait for each other: kernels of the simulator run
// when somebody waits for a device, and by then the calls of all ranks have to be made.
class Meeting {
 public:
  explicit Meeting(int32_t ranks) : ranks_(ranks) {}

  // Returns when so many threads have come as there are ranks. Goes on without the others after
  // patience_ms: the kernels then find out who is silent.
  void wait(int64_t patience_ms);
  // Lets all go on, now and later.
  void abort();

 private:
  int32_t ranks_;
  std::mutex mutex_;
  std::condition_variable all_have_come_;
  int32_t come_ = 0;
  int64_t meetings_ = 0;  // that have taken place
  bool is_aborted_ = false;
};

// One rank's layer of a group that is ready for calls, and what operators need of its plan. The
// host has prepared it, and owns all that it points to.
struct ReadyGroupLayer {
  moejit_group_layer* layer = nullptr;
  DLDevice place{};            // of its device
  ReadyLayer ready;            // its device and its plan; has no layer
  Meeting* meeting = nullptr;  // of simulated ranks; NULL with GPUs
  int64_t patience_ms = 0;     // there

  // Lets a simulated rank's kernels run, once all ranks have come with their calls. On a GPU, where
  // they follow in the order of the stream, it does nothing.
  void run_call_in_simulator() const;
  // Does the same for kernels that need no other rank.
  void run_simulator() const;
};

// Returns the layer of a text for tensors on `device`. It stays until the host removes it, which it
// does when no module is left that calls it. Threads may call it at any time. Throws if the text is
// of one rank, if the process has no such layer, or if its group is on another device.
const ReadyGroupLayer& ready_group_layer(std::string_view text, DLDevice device);

}  // namespace moejit::torch
