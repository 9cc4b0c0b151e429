// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"
#include "runtime/host_tensor.h"
#include "runtime/reference/number_formats.h"

#include <cstdint>

namespace moejit::trial {

// Returns the bytes [rows, C] of an operand of wgrad [C / 128, rows, 128].
runtime::HostTensor join_column_blocks(const runtime::HostTensor& blocks);

// Replaces, for files, each operand of wgrad among `tensors` by one tensor for each expert e. The
// operands hold all tokens as columns, groups at multiples of 128.
//
// "x_colwise_q" F8_E4M3 [C/128, H, 128] becomes "x_colwise_q.e" [H, counts[e]].
// "x_colwise_scale_inv" becomes "x_colwise_scale_inv.e" [ceil(counts[e]/128), H]. Such a scale
// belongs to a column of the transposed matrix and 128 of its rows. The scales came as F32
// [ceil(H/128), C/128], one for each 128x128 tile, or as [C/128, H].
//
// Needs "counts" and "offs" or, if present, "colwise_offs". Operands of values in bf16 lie as rows
// and stay.
void slice_colwise(runtime::TensorMap& tensors);

// Removes, for files, the zeros that pad gate and up from I = `columns` elements each to `padded`.
// Changes "dh1_q", "w1_colwise_q" and the tensors "dh1_colwise_q.e" and "dh1_colwise_scale_inv.e"
// that slice_colwise() has made.
void drop_padding_of_halves(runtime::TensorMap& tensors, int64_t columns, int64_t padded);

// Puts, for files, all of gate before all of up in rows of 2 * `columns` elements of bf16 in which
// they alternate. Changes "h1", "dh1" and, if they hold recovered values, "dh1_q" and
// "dh1_colwise_q".
void put_gate_first(runtime::TensorMap& tensors, int64_t columns);

// Returns the number format of FP8 codes of this type, kF8E4M3 or kF8E5M2.
inline reference::Fp8Format fp8_format(compiler::DType dtype) {
  return dtype == compiler::DType::kF8E5M2 ? reference::Fp8Format::kE5m2
                                           : reference::Fp8Format::kE4m3;
}

}  // namespace moejit::trial
