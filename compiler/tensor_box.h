// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "compiler/support/error.h"

namespace moejit::compiler {

// Checks that tensor copies take this box of the tensor at `address` (CUDA driver API,
// cuTensorMapEncodeTiled). Error kInternal with what is wrong: the planner made the box, the caller
// bound the address.
Result<void> check_tensor_box(const TensorBox& box, const void* address);

}  // namespace moejit::compiler
