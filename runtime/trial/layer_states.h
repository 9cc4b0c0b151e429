// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "runtime/host_tensor.h"

#include <cstdint>
#include <string_view>

namespace moejit::trial {

// Returns the state with which training starts: histories of zeros, scales of ones. `tensor` has
// the role kState.
runtime::HostTensor first_state(const compiler::TensorPlan& tensor);

// Returns zeros for each gradient that the call adds to; empty if it adds to none.
runtime::TensorMap first_gradients(const compiler::Plan& plan, std::string_view call);

// Returns states as some steps of training leave them, for all tensors of the role kState. Seeded
// histories hold the usual largest magnitudes of activations, weights and gradients. The scales
// follow from them, and nothing is recorded in this step. Empty if the recipe has no history.
runtime::TensorMap random_states(const compiler::Plan& plan, uint64_t seed);

}  // namespace moejit::trial
