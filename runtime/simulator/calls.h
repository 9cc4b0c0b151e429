// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "templates/moejit_sim/machine.h"

namespace moejit::runtime {

// Returns the functions that kernels call, by way of the Machine; its owner is the Cta.
const sim::Calls& calls_of_cta();

}  // namespace moejit::runtime
