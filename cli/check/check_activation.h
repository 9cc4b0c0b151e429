// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/check/check_forward.h"
#include "tests/support/reference/activation.h"
#include "tests/support/reference/layer_shape.h"

#include <span>
#include <vector>

namespace moejit::cli {

// act_q and act_scale_inv against the reference's SwiGLU of the same h1. A kernel's sigmoid may be
// up to 2^-17 off: codes may be neighbours, and where a block's amax is within 2^-20 of a step of
// the scale, the scale may be the other one; that block's codes are then left out. Blocks that
// share a scale are one here.
std::vector<TensorCheck> check_activation(std::span<const uint16_t> h1,
                                          std::span<const float> probs,
                                          const reference::Route& route,
                                          const reference::LayerShape& shape,
                                          const reference::QuantizedRows& got);

}  // namespace moejit::cli
