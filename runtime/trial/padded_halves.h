// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/host_tensor.h"

#include <cstdint>

namespace moejit::trial {

// Removes, for files, the zeros that pad gate and up from I = `columns` elements each to `padded`
// in "dh1_q", "w1_colwise_q" and, sliced by slice_colwise(), "dh1_colwise_q.e" and
// "dh1_colwise_scale_inv.e".
void drop_padding_of_halves(runtime::TensorMap& tensors, int64_t columns, int64_t padded);

// Puts, for files, all of gate before all of up in rows of "h1", "dh1" and, of recovered values,
// "dh1_q" and "dh1_colwise_q": 2 * `columns` elements of bf16 in which they alternate.
void put_gate_first(runtime::TensorMap& tensors, int64_t columns);

}  // namespace moejit::trial
