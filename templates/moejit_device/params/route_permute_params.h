// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/params/route_params.h"
#include "moejit_device/params/row_chain_params.h"

namespace moejit::device {

// Arguments of route_permute. Null are the rows' row_map, counts and offs, which the kernel finds
// itself, and what only backward calls have.
struct RoutePermuteParams {
  RouteParams route;
  RowChainParams rows;
};

}  // namespace moejit::device
