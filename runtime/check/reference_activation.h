// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"
#include "runtime/check/bounded_values.h"
#include "runtime/reference/gated_activation.h"

namespace moejit::check {

// The reference's activation of the same name. Own formulas have none: theirs evaluates the tree in
// double, so that a check of them is about kernels, not about how a formula is read or derived.
reference::GatedActivation reference_of(const compiler::Activation& activation);

// Returns the activation times probability of a kernel's "input", before it is rounded.
BoundedRows activation_values(const compiler::Activation& activation, int64_t columns,
                              bool is_interleaved, const KernelTensors& tensors);

}  // namespace moejit::check
