// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/support/seeded_random.h"

#include <cstdint>
#include <string>

namespace moejit::testing {

struct RandomRouter {
  int64_t experts = 0;  // without zero experts
  int64_t top_k = 0;
  std::string json;  // the object "router"
};

// Returns a router in which every field of docs/router.md is chosen at random, for sizes of which
// the simulator takes a token in milliseconds. About one in twenty has fields that contradict each
// other.
RandomRouter random_router(SeededRandom& random);

// Returns such an object for a layer with these sizes. It has no zero experts, and no
// contradictions on purpose.
std::string random_router_of(SeededRandom& random, int64_t experts, int64_t top_k);

}  // namespace moejit::testing
