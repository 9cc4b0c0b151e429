// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/gpu/test_layer.h"
#include "tests/support/layer_inputs.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace moejit::testing {

// Expects every tensor that these passes left in the layer to be that of the plain CPU reference,
// as check_plan() compares them, and no damage(). `inputs` and `dy`, bf16
// [T, H], are what the calls were given; `dy` may be empty where no backward pass is compared. No
// tensor that a kernel of these passes writes may be left out but the status word.
// Returns the number of tensors that were compared.
std::size_t expect_reference(TestLayer& layer, const reference::LayerInputs& inputs,
                             const std::vector<uint16_t>& dy,
                             const std::vector<compiler::Pass>& passes = {
                                 compiler::Pass::kForward, compiler::Pass::kBackward});

// Damages a byte of each tensor that kernels of these passes have written, one after the other, and
// returns those of which the comparison does not see it. The first expert has to have rows.
std::vector<std::string> unseen_damage(TestLayer& layer, const reference::LayerInputs& inputs,
                                       const std::vector<uint16_t>& dy,
                                       const std::vector<compiler::Pass>& passes);

}  // namespace moejit::testing
