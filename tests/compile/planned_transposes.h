// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/compile/planned_kernels.h"

namespace moejit::testing {

// Add kernels that make operands of wgrad, and both orientations of tensors: transposes of codes,
// casts of values, gradients of the activation, and casts of lists with known scales.
void add_transposes(std::map<std::string, PlannedKernel>& all);
void add_casts_of_values(std::map<std::string, PlannedKernel>& all);
void add_activation_gradients(std::map<std::string, PlannedKernel>& all);
void add_cast_transposes(std::map<std::string, PlannedKernel>& all);

}  // namespace moejit::testing
