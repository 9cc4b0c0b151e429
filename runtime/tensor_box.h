// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "compiler/support/error.h"

namespace moejit::runtime {

// Is this a box that tensor copies take (CUDA driver API, cuTensorMapEncodeTiled)? Error kInternal
// with what is wrong: the planner made the box, the caller bound the address.
Result<void> check_tensor_box(const compiler::TensorBox& box, const void* address);

// Bytes of one row of the box, which follow each other in shared memory.
int64_t box_row_bytes(const compiler::TensorBox& box);

}  // namespace moejit::runtime
