// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "compiler/planner/exchange_operation.h"
#include "compiler/support/error.h"
#include "compiler/target.h"

namespace moejit::compiler {

// Plans a step of an exchange alone: one kernel, and its tensors, all of which callers own. They
// have the names of exchange_operation(). Error kUnsupported: an exchange that there are no kernels
// for.
Result<Plan> plan_exchange(ExchangeStep step, const Exchange& exchange, const Target& target);

}  // namespace moejit::compiler
