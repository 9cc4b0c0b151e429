// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/gpu/test_layer.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace moejit::testing {

// Expects every tensor that these passes left in the layer to be that of the plain CPU reference,
// as check_forward() and check_backward() compare them, and no damage(). `inputs` and `dy`, bf16
// [T, H], are what the calls were given; `dy` may be empty where no backward pass is compared.
// Returns the number of tensors that were compared.
std::size_t expect_reference(TestLayer& layer, const reference::LayerInputs& inputs,
                             const std::vector<uint16_t>& dy,
                             const std::vector<compiler::Pass>& passes = {
                                 compiler::Pass::kForward, compiler::Pass::kBackward});

}  // namespace moejit::testing
