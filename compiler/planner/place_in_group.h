// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"

#include <cstdint>

namespace moejit::compiler {

// Places what peers reach: the tensors of rank `rank`, and the other ranks' at the same offsets.
// Layers with other kernels share the memory, so the order is always the same. The flags of routes
// have a place in every group that exchanges choices.
GroupPlace place_in_group(Plan& plan, int64_t rank);

}  // namespace moejit::compiler
