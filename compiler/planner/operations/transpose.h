// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/transpose.h"

#include <cstdint>

namespace moejit::compiler {

struct KernelContext;
struct KernelPlan;
struct Operation;

// Turns quantized rows into an operand of wgrad, without quantizing them again. Reads input [P,
// columns], or [T, columns] and row_tokens if rows are gathered; counts, offs and output_offs, the
// starts of the groups of columns. Writes output [C / 128, columns, 128].
struct Transpose {
  int32_t local_experts = 0;
  int32_t columns = 0;
  RowSource source = RowSource::kInOrder;
  DType format = DType::kF8E4M3;
  bool keeps_bytes = false;  // whether rows of a group have one scale, which the operand keeps
};

KernelPlan make_kernel(const Operation& operation, const Transpose& transpose,
                       const KernelContext& context);
inline void narrow(Operation&, const Transpose&) {}

}  // namespace moejit::compiler
