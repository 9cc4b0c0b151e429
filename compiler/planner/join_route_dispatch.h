// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/planner/exchange_operation.h"

namespace moejit::compiler {

// Returns whether join_route_dispatch() takes these three operations in a row, and a kernel has
// room for all of them.
bool can_join_route_dispatch(const Operation& choices, const Operation& route,
                             const Operation& dispatch);

// Joins the exchange of choices, the route of all slots, and the dispatch and permute of rows. So
// rows are on the wire while choices are exchanged and routed. A port has the role that it has in
// its operation, behind "choices.", "route." or "dispatch.". The values are the ones that the
// joined operation adds, with flags in the memory of `rank`, whose operations these are.
ExchangeOperation join_route_dispatch(const Operation& choices, const Operation& route,
                                      const Operation& dispatch, int32_t rank);

}  // namespace moejit::compiler
