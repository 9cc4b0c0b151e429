// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/grouped_gemm.h"
#include "compiler/recipe.h"

namespace moejit::compiler {

struct KernelContext;
struct KernelPlan;
struct Operation;

// Multiplies the rows of each group with its group's matrix: D = A * B[e]^T. Reads a [P, k], b [E,
// N, k], or [E, k, N] if MN-major, counts and offs. With a bias it reads bias [E, N], and probs [P]
// if the bias is multiplied by them. Writes d [P, N].
struct GroupedGemm {
  GroupedGemmSpec problem;  // all but its tiles
};

// Multiplies as GroupedGemm does, where N has gate and up, and activates, weighs and quantizes the
// result. Reads a, b, probs, counts and offs. Writes q [P, N / 2], and d if wanted.
struct GroupedGemmActivation {
  GroupedGemmSpec problem;  // all but its tiles and epilogue, which follows from the writes
};

// Sets the operands and scales of a problem from the formats of A and B.
void set_formats(GroupedGemmSpec& problem, const Format& a, const Format& b);

KernelPlan make_kernel(const Operation& operation, const GroupedGemm& gemm,
                       const KernelContext& context);
KernelPlan make_kernel(const Operation& operation, const GroupedGemmActivation& gemm,
                       const KernelContext& context);
inline void narrow(Operation&, const GroupedGemm&) {}
inline void narrow(Operation&, const GroupedGemmActivation&) {}

}  // namespace moejit::compiler
