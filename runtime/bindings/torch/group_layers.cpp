// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/graph/group_plans.h"

#include <exception>

extern "C" {

// Returns a new meeting of simulated ranks.
__attribute__((visibility("default"))) void* moejit_torch_open_meeting(int32_t ranks) {
  return new moejit::graph::Meeting(ranks);
}

// Lets threads that wait in a meeting go on, and later ones too.
__attribute__((visibility("default"))) void moejit_torch_abort_meeting(void* meeting) {
  static_cast<moejit::graph::Meeting*>(meeting)->abort();
}

// Ends a meeting whose layers have all been removed.
__attribute__((visibility("default"))) void moejit_torch_close_meeting(void* meeting) {
  delete static_cast<moejit::graph::Meeting*>(meeting);
}

// Is add_group_plan() without exceptions: returns 0, or 1 if there is no memory.
__attribute__((visibility("default"))) int32_t moejit_torch_add_group_layer(const char* text,
                                                                            moejit_plan* layer,
                                                                            moejit_device* device,
                                                                            void* meeting,
                                                                            int64_t patience_ms) {
  try {
    moejit::graph::add_group_plan(text, layer, device,
                                  static_cast<moejit::graph::Meeting*>(meeting), patience_ms);
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

// Is remove_group_plan().
__attribute__((visibility("default"))) void moejit_torch_remove_group_layer(const char* text) {
  moejit::graph::remove_group_plan(text);
}

}  // extern "C"
