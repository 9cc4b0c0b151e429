// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/launch/bound_tensors.h"

namespace moejit::runtime {

// Refuses a backward call whose T differs from its forward call's, which filled the saved block:
// error kTensorMismatch with both. The host reads the block, which must be its own memory.
Result<void> check_saved_tokens(const compiler::Plan& plan, const BoundTensors& bound);

}  // namespace moejit::runtime
