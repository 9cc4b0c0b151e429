// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"
#include "runtime/check/bounded_rows.h"

namespace moejit::check {

// Returns the activation times probability of a kernel's "input", before it is rounded.
BoundedRows activation_values(const compiler::Activation& activation, int64_t columns,
                              bool is_interleaved, const KernelTensors& tensors);

}  // namespace moejit::check
