// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace moejit::cli {

struct OpenedTarget {
  std::unique_ptr<runtime::Device> device;
  std::string description;  // "cuda:sm_90a on NVIDIA H200", "sim"
  std::string reason;       // why auto did not take a GPU, else empty
};

// "target sim, the simulator, since there is no GPU: no CUDA driver library found, ...": what a
// command tells before it begins.
std::string target_text(const OpenedTarget& target);

// The device for `name`: cuda, cuda:sm_90a, sim, or auto, which takes the GPU where there is one
// that the target can run on, else the simulator with `seed`. Errors: kInvalidValue, and those of
// opening the device that was asked for by name, with `without_gpu` as the hint where there is no
// GPU that can be used: what the command can do instead.
Result<OpenedTarget> open_target(const std::string& name, uint64_t seed,
                                 std::string_view without_gpu);

}  // namespace moejit::cli
