// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/target.h"

#include <string>
#include <vector>

namespace moejit::compiler {

// Returns NVRTC's options for a target, in a fixed order: IEEE arithmetic without contraction,
// exact architecture. The version decides which options exist.
std::vector<std::string> compile_options(const Target& target, int nvrtc_major, int nvrtc_minor);

}  // namespace moejit::compiler
