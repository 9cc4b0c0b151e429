// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/check/tensor_check.h"
#include "runtime/reference/activation.h"
#include "runtime/reference/layer_shape.h"

#include <span>
#include <string_view>
#include <vector>

namespace moejit::check {

// Compares rows `codes` and their `scales` with what the reference makes of `values` [rows,
// got.cols], to within one code. The values went through an approximate function: a kernel's
// sigmoid may be up to 2^-17 off. If the largest magnitude of a block is within 2^-20 of a step of
// the scale, the device's choice of the scale is accepted. `sharing` blocks of a row share each
// scale.
std::vector<TensorCheck> check_quantized(std::string_view codes, std::string_view scales,
                                         std::span<const float> values,
                                         const reference::Route& route, int64_t sharing,
                                         const reference::QuantizedRows& got);

}  // namespace moejit::check
