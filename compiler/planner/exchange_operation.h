// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/exchange.h"
#include "compiler/planner/graph.h"

#include <vector>

namespace moejit::compiler {

// A step of an exchange as an operation of a graph, and the values that it touches, under the names
// of plan_exchange(). A value "slots_0" lies in the memory of rank 0. No value has a role.
struct ExchangeOperation {
  Operation operation;
  std::vector<Value> values;
};

// Makes the operation of a step of an exchange that there are kernels for.
ExchangeOperation exchange_operation(ExchangeStep step, const Exchange& exchange);

// Sets the rank, and the numbers that follow from it, in a kernel of an exchange. Must be called
// after complete_kernel().
void set_rank(KernelPlan& kernel, int64_t rank, int64_t timeout_ms);

}  // namespace moejit::compiler
