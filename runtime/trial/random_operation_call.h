// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/trial/operation_inputs.h"

namespace moejit::trial {

// Makes a call of random data, the same for a seed on every machine, with `size` in the dimension
// of call_size(): activations and weights as layers get them, experts whose popularity falls like
// 1 / rank or is the same, e4m3 codes with the scales of a quantizer. Pad rows hold numbers, not
// zeros, except where the operation says that columns of no token hold zeros.
OperationCall random_operation_call(const compiler::OperationPlan& plan, int64_t size,
                                    uint64_t seed, RandomRouting routing = RandomRouting::kSkewed);

}  // namespace moejit::trial
