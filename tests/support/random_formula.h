// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/support/seeded_random.h"

#include <string>

namespace moejit::testing {

// Returns a formula of gate and up for the field "activation" of a layer description, with at most
// 1000 characters, which mentions `up` and in most cases `gate`. With `is_tame`, value and
// gradients are finite and of moderate size for moderate gate and up, so that results can be
// compared with a reference; without, any function may be given anything.
std::string random_formula(SeededRandom& random, bool is_tame);

}  // namespace moejit::testing
