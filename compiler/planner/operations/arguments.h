// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/planner/operation.h"

#include <string>
#include <vector>

namespace moejit::compiler {

// Adds the tensor of a port as the argument of this role, and its scales, if any, as that of
// "<role>_scale_inv".
void add_argument(KernelPlan& kernel, std::string role, const Port& port);

// Adds the arguments of the roles that the operation's reads and writes have, under the same names.
// Roles that it has not are left out.
void add_arguments(KernelPlan& kernel, const Operation& operation,
                   std::initializer_list<std::string_view> roles);

}  // namespace moejit::compiler
