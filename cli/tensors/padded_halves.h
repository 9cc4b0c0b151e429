// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/tensors/host_tensor.h"

#include <cstdint>

namespace moejit::cli {

// For files: takes out the zeros that fill up gate and up, I = `columns` elements each, to `padded`
// in "dh1_q", "w1_colwise_q" and, sliced by slice_colwise(), "dh1_colwise_q.e" and
// "dh1_colwise_scale_inv.e".
void drop_padding_of_halves(TensorMap& tensors, int64_t columns, int64_t padded);

}  // namespace moejit::cli
