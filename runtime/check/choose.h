// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/random_inputs.h"

#include <cstdint>
#include <vector>

namespace moejit::check {

// `wanted` of the numbers below `count`: the first, the last, and any between, some perhaps twice.
std::vector<int64_t> choose(const reference::RandomStream& random, int64_t wanted, int64_t count);

// All numbers below `count`, or as many as can be afforded, at least two.
std::vector<int64_t> choose_affordable(const reference::RandomStream& random, double affordable,
                                       int64_t count);

}  // namespace moejit::check
