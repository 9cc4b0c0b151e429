// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/trial/operation_inputs.h"

namespace moejit::trial {

// Makes a call of random data with `size` in the dimension of call_size(). A seed gives the same
// data on every machine. Activations and weights are as layers get them. The popularity of experts
// falls like 1 / rank, or is uniform. E4M3 codes have the scales of a quantizer. Pad rows hold
// numbers, not zeros, unless the operation says that columns of no token hold zeros.
OperationCall random_operation_call(const compiler::Plan& plan, int64_t size, uint64_t seed,
                                    RandomRouting routing = RandomRouting::kSkewed);

}  // namespace moejit::trial
