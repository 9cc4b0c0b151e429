// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "compiler/support/error.h"

namespace moejit::compiler {

// Checks that tensor copies accept this box of the tensor at `address` (CUDA driver API,
// cuTensorMapEncodeTiled). Error kInternal says what is wrong with the box, which the planner made,
// or with the address, which the caller bound.
Result<void> check_tensor_box(const TensorBox& box, const void* address);

}  // namespace moejit::compiler
