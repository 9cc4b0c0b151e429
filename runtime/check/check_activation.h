// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"
#include "runtime/check/bounded_values.h"
#include "runtime/reference/activation.h"

namespace moejit::check {

// Returns the reference's activation of the same name. The reference has no formulas: for these,
// the result evaluates the formula's tree in double. Their checks therefore test kernels, not how
// formulas are read or derived.
reference::GatedActivation reference_of(const compiler::Activation& activation);

// Returns a kernel's wanted activation of the role `input`, times the probability, before it is
// rounded.
BoundedRows activation_values(const compiler::Activation& activation, int64_t columns,
                              bool is_interleaved, const KernelTensors& tensors,
                              std::string_view input = "input");

// Checks the role `output`, an activation of the role `input` that is stored in bf16.
void check_bf16_activation(const compiler::Activation& activation, int64_t columns,
                           bool is_interleaved, const KernelTensors& tensors,
                           std::string_view input, std::string_view output, CheckList& list);

}  // namespace moejit::check
