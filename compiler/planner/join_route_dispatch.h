// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/planner/exchange_operation.h"

namespace moejit::compiler {

// Returns whether three operations in a row are those that join_route_dispatch() takes, and a
// kernel has room for all of them.
bool can_join_route_dispatch(const Operation& choices, const Operation& route,
                             const Operation& dispatch);

// Joins the exchange of choices, the route of all slots, and the dispatch and permute of rows: rows
// are on the wire while choices are exchanged and routed. The roles of a port are those of its
// operation behind "choices.", "route." or "dispatch.". The values are those that the joined
// operation adds.
ExchangeOperation join_route_dispatch(const Operation& choices, const Operation& route,
                                      const Operation& dispatch);

}  // namespace moejit::compiler
