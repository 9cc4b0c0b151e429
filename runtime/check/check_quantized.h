// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/check/tensor_check.h"
#include "runtime/reference/activation.h"
#include "runtime/reference/layer_shape.h"

#include <span>
#include <string_view>
#include <vector>

namespace moejit::check {

// Compares rows `codes` with their `scales`, whose values [rows, got.cols] went through an
// approximate function, with what the reference makes of them: within one code; where the largest
// magnitude of a block is within 2^-20 of a step of the scale, the device's choice is taken over. A
// kernel's sigmoid may be up to 2^-17 off. `sharing` blocks of a row share each scale.
std::vector<TensorCheck> check_quantized(std::string_view codes, std::string_view scales,
                                         std::span<const float> values,
                                         const reference::Route& route, int64_t sharing,
                                         const reference::QuantizedRows& got);

}  // namespace moejit::check
