// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace moejit::compiler {

enum class TargetKind {
  kCuda,  // NVRTC makes a cubin for `arch`
  kSim,   // the host C++ compiler makes a shared object for the simulator
};

// The platform that a kernel is compiled for. Planning and compiling need only this record, no
// device.
struct Target {
  TargetKind kind = TargetKind::kCuda;
  std::string arch = "sm_90a";           // "host" for the simulator
  int32_t shared_memory_bytes = 232448;  // most dynamic shared memory that a CTA may ask for
  int32_t max_threads_per_cta = 1024;

  bool operator==(const Target&) const = default;
};

// Convert "cuda:sm_90a" and "sim". An unknown name is an error that lists the known ones.
Result<Target> parse_target(std::string_view name);
std::string to_string(const Target& target);

}  // namespace moejit::compiler
