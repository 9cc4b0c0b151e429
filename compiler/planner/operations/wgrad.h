// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/contraction_grouped_gemm.h"

namespace moejit::compiler {

struct KernelContext;
struct KernelPlan;
struct Operation;

// Multiplies along the tokens of each group: D[e] = A * B^T. Reads a and b. They are blocks of 128
// columns with a scale for each tile [C / 128, rows, 128], or bf16 in permuted order [P, rows].
// Also reads counts, and offs, where the groups of these columns start. Writes d [E, rows, n].
struct Wgrad {
  ContractionGroupedGemmSpec problem;  // all but its tiles
};

KernelPlan make_kernel(const Operation& operation, const Wgrad& wgrad,
                       const KernelContext& context);
inline void narrow(Operation&, const Wgrad&) {}

}  // namespace moejit::compiler
