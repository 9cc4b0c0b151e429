// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/amax_columns.h"
#include "compiler/recipe.h"

#include <cstdint>

namespace moejit::compiler {

struct KernelContext;
struct KernelPlan;
struct Operation;

// Casts rows of tokens with the known scale of each expert that they go to. It also makes an
// operand of wgrad of the same codes, with one read for both. Reads input [T, columns] in bf16,
// row_tokens [P], counts, offs and output_offs, the starts of the groups of columns, and
// expert_scales [E]. Writes output_colwise [C / 128, columns, 128], and output [P, columns] if
// wanted.
struct CastTranspose {
  int32_t local_experts = 0;
  int32_t columns = 0;
  Format format = {};        // of the output
  bool zeroes_rows = false;  // whether rows become zeros that row_tokens marks as zeros
  AmaxColumns amax = {};     // columns of a state amax, which a cast raises to largest magnitudes
};

KernelPlan make_kernel(const Operation& operation, const CastTranspose& cast,
                       const KernelContext& context);
inline void narrow(Operation&, const CastTranspose&) {}

}  // namespace moejit::compiler
