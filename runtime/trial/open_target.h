// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace moejit::trial {

struct OpenedTarget {
  std::unique_ptr<runtime::Device> device;
  std::string description;  // "cuda:sm_90a on NVIDIA H200", "sim"
  std::string reason;       // why auto did not take a GPU, else empty
};

// Returns what a command tells before it begins: "target sim, the simulator, since there is no GPU:
// no CUDA driver library found, ...".
std::string target_text(const OpenedTarget& target);

// Opens the device for `name`: cuda, cuda:sm_90a, sim, or auto, which takes a GPU that the target
// can run on, if there is one, else the simulator with `seed`. Errors: kInvalidValue, and those of
// opening the named device; if no GPU can be used their hint is `without_gpu`, which says what the
// command can do instead.
Result<OpenedTarget> open_target(const std::string& name, uint64_t seed,
                                 std::string_view without_gpu);

}  // namespace moejit::trial
