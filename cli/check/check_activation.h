// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/check/tensor_check.h"
#include "runtime/reference/activation.h"
#include "runtime/reference/layer_shape.h"

#include <span>
#include <string_view>
#include <vector>

namespace moejit::cli {

// Compares "<name>_q" and "<name>_scale_inv", whose values [rows, got.cols] went through an
// approximate function, with what the reference makes of them: within one code; where the largest
// magnitude of a block is at a step of the scale, the device's choice is taken over. `sharing`
// blocks of a row share each scale.
std::vector<TensorCheck> check_quantized(std::string_view name, std::span<const float> values,
                                         const reference::Route& route, int64_t sharing,
                                         const reference::QuantizedRows& got);

// act_q and act_scale_inv against the reference's activation of the same h1. A kernel's sigmoid may
// be up to 2^-17 off: codes may be neighbours, and where a block's amax is within 2^-20 of a step
// of the scale, the scale may be the other one; that block's codes are then left out. Blocks that
// share a scale are one here.
std::vector<TensorCheck> check_activation(std::span<const uint16_t> h1,
                                          std::span<const float> probs,
                                          const reference::Route& route,
                                          const reference::LayerShape& shape,
                                          const reference::GatedActivation& activation,
                                          const reference::QuantizedRows& got);

}  // namespace moejit::cli
