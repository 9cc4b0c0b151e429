// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"

#include <cstddef>
#include <string_view>
#include <vector>

namespace moejit::compiler {

// Returns the calls that a call needs, in their order, and the call itself at the end, as indices
// into Plan::calls. The order follows from what calls read and write. A call needs a call before it
// that writes the blocks and the quantized or dispatched tensors that it reads. If several calls
// do, the order with the fewest kernels is taken; of calls that write the saved block, the plan's
// first is. A call that takes states alone comes after the calls that fill these states. Errors: as
// find_call() returns them.
Result<std::vector<std::size_t>> calls_up_to(const Plan& plan, std::string_view name);

// Returns whether states are all that a call takes: it finds what the next step reads.
bool takes_states_alone(const Plan& plan, const CallPlan& call);

// Returns whether a step of the call writes a tensor, a caller's or one in a block.
bool writes(const Plan& plan, const CallPlan& call, std::string_view tensor);

// Returns the kernels that these calls launch, in launch order, as indices into Plan::kernels.
std::vector<std::size_t> kernels_of(const Plan& plan, const std::vector<std::size_t>& calls);

}  // namespace moejit::compiler
