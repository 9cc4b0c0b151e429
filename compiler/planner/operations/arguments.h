// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/planner/operation.h"

#include <string>
#include <vector>

namespace moejit::compiler {

// Adds the tensor of a port as the argument of this role, and its scales, if any, as the argument
// "<role>_scale_inv".
void add_argument(KernelPlan& kernel, std::string role, const Port& port);

// Adds arguments for the given roles from the operation's reads and writes, under the same names.
// Skips roles that the operation does not have.
void add_arguments(KernelPlan& kernel, const Operation& operation,
                   std::initializer_list<std::string_view> roles);

}  // namespace moejit::compiler
