// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace moejit::testing {

// Returns the description of an operation, as JSON text, in which a seed chooses the kind and every
// field of docs/operations-api.md: sizes for which the simulator takes less than a second. The same
// seed gives the same bytes everywhere. About one in thirty combines fields that do not go
// together, which is to be refused with a sentence.
std::string random_operation(uint64_t seed);

// Returns the description of an operation `router` or `router_backward` with random fields.
std::string random_router_operation(uint64_t seed);

}  // namespace moejit::testing
