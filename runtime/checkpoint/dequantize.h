// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"
#include "runtime/host_tensor.h"

namespace moejit::checkpoint {

// Replaces `w1_q`, `w1_scale_inv`, `w2_q` and `w2_scale_inv` by BF16 `w1` and `w2`: each code times
// the scale of its 128x128 block, rounded once. Blocks of `w1` restart at the up half.
void dequantize_weights(const compiler::Layer& layer, runtime::TensorMap& tensors);

}  // namespace moejit::checkpoint
