// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/route.h"
#include "runtime/trial/operation_inputs.h"

#include <cstdint>
#include <vector>

namespace moejit::trial {

// The sizes of a random call of an operation, and its groups of rows or columns, if it has any.
struct RandomGroups {
  compiler::CallDims dims;
  std::vector<int32_t> ids;  // [T, K], if tokens are routed
  reference::Route route;
  std::vector<int32_t> column_starts;  // [E + 1], multiples of 128, if rows become columns
};

// Makes the sizes and groups of a call with `size` in the dimension of call_size(). Tokens are
// routed as a layer's tokens are. If an operation has groups but no tokens, the groups fill P or C
// as far as pad rows let them. Rows that do not fit are cut.
RandomGroups random_groups(const compiler::Plan& plan, int64_t size, uint64_t seed,
                           RandomRouting routing);

}  // namespace moejit::trial
