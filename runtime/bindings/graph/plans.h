// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/graph/call_row.h"

#include <cstdint>
#include <dlpack/dlpack.h>
#include <string_view>

namespace moejit::graph {

class Meeting;

// A plan that is ready for calls on one device.
struct ReadyPlan {
  moejit_plan* plan = nullptr;
  moejit_device* device = nullptr;
  DLDevice place{};  // of the device
  moejit_plan_info info{};
  PlanRows rows;
  int64_t number = 0;  // no other plan of the process has it
  // The place where threads of simulated ranks wait for each other, and how long. NULL on GPUs, and
  // for plans of no group.
  Meeting* meeting = nullptr;
  int64_t patience_ms = 0;

  // Returns the call of this name; throws the library's sentence if the plan has none.
  const CallRow& find_call(const char* name) const;
  // Returns the sizes of the blocks of a call over so many tokens; throws for more than max_tokens.
  moejit_plan_sizes sizes(int64_t tokens) const;
};

// Fills all but the device and the meeting from a plan.
void read_plan(moejit_plan* plan, ReadyPlan& ready);

// Returns the plan of an operator's last argument on the device of its tensors. The first call
// compiles or fetches the kernels; later ones take a shared lock and look the text up. Plans stay
// until the process ends, since graphs of the host may hold their kernels. Layers of groups stay
// until the host removes them, when no module is left that calls them. Threads may call it at any
// time; two that ask for different plans prepare them at the same time. Throws the errors of
// moejit_plan_create and moejit_plan_prepare. Throws a sentence for a text of another version, plan
// or target, or of a group that this process does not have.
const ReadyPlan& ready_plan(std::string_view text, DLDevice device);

}  // namespace moejit::graph
